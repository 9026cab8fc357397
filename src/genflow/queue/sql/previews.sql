-- The newest preview of each of these jobs that has one. Locks: none. Index: job_live_pkey.
select job_id, preview_no, preview_node, preview
from genflow.job_live
where job_id = any(%(jobs)s) and preview is not null
