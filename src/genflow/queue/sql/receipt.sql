-- Checkpoint: the server took the prompt. Tells whether a cancel came in between.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_pkey.
with held as materialized (
    select id, cancel_at
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), accepted as (
    update genflow.submits as u
    set state = 2, number = coalesce(%(number)s, u.number), client_id = coalesce(%(client_id)s, u.client_id),
        accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state + 0 = 1  -- + 0: by job, not by all open ones
), kept as (
    update genflow.jobs as j
    set step = 2, lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    where j.id = held.id
)
select id, cancel_at
from held
