-- How many live jobs there are, counted up to queue_limit. Locks: none. Index: jobs_live.
select count(*) as live
from (select 1 from genflow.jobs where state < 10 limit %(queue_limit)s) as counted
