-- Renew one lease before a call that changes a server. Locks: the job's row (fence). Index: jobs_pkey.
update genflow.jobs
set lease_until = greatest(lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
where id = %(job)s and token = %(token)s and worker_id = %(worker)s
returning id, cancel_at
