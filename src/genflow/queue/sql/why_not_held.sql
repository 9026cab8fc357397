-- Why a fenced write found nothing: canceled, or the lease went to another. Locks: none. Index: jobs_pkey.
select state, token, worker_id, cancel_at, start_by < genflow.clock() as start_by_passed
from genflow.jobs
where id = %(job)s
