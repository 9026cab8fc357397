-- A job is to be erased: at once where it is over, else as soon as that is so. Locks: the job's row. Index: jobs_pkey.
update genflow.jobs
set erase = true
where id = %(job)s and tenant_id = %(tenant)s and (state < 10 or expires_at > genflow.clock())
returning state
