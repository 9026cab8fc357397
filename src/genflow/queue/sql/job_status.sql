-- The least that tells whether a job ended, for a request that waits. Locks: none. Index: jobs_pkey.
select state
from genflow.jobs
where id = %(job)s and tenant_id = %(tenant)s
