-- Jobs that ended within the last minute, for Retry-After of a full queue. Locks: none. Index: jobs_ended.
select count(*) as ended
from genflow.jobs
where state >= 10 and ended_at > genflow.clock() - interval '60 s'
