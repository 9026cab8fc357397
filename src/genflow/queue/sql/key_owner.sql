-- Where an idempotency key leads: its asset, or its job, or the newest one requeued from that; and the body that it came
-- with. Locks: none. Index: job_keys_pkey, job_specs_root, job_specs_pkey, jobs_pkey.
select genflow.newest(job_id) as job_id, body_hash
from genflow.job_keys
where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and expires_at >= genflow.clock()
