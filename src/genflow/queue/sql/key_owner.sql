-- Where an idempotency key leads: its asset, or its job, or the newest one requeued from that. Locks: none.
-- Index: job_keys_pkey, job_specs_root.
select genflow.newest(job_id) as job_id
from genflow.job_keys
where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and expires_at >= genflow.clock()
