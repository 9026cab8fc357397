-- Which of these jobs are dead letters now. Locks: none. Index: jobs_pkey.
select id
from genflow.jobs
where id = any(%(jobs)s) and tenant_id = %(tenant)s and state = 11 and requeued_as is null
