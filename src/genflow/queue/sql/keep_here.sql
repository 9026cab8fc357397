-- A prompt that was to be taken back began to run: it stays at its server, and nothing stops it.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_pkey.
with held as materialized (
    select id
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), unmarked as (
    update genflow.submits as u
    set stop_reason = null
    from held
    where u.job_id = held.id and u.no = %(no)s and u.stop_reason = 'neighbour'
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id
