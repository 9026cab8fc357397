-- Where a submit's idempotency key leads: its job, or the newest one requeued from it. Locks: none.
-- Index: job_keys_pkey, job_specs_root.
select genflow.newest(job_id) as job_id
from genflow.job_keys
where tenant_id = %(tenant)s and scope = 'submit' and key = %(key)s
