-- The prompt was seen running: the job shows as running from now on, and a hard deadline stands.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select id, cancel_at
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), executing as (
    update genflow.submits as u
    set state = 3, executed = true, running_at = genflow.clock(), accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state < 3
), kept as (
    update genflow.jobs as j
    set executing_at = coalesce(j.executing_at, genflow.clock()), step = greatest(j.step, 2::smallint),
        deadline_at = coalesce(j.deadline_at, genflow.clock() + %(deadline_s)s * interval '1 s'),
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    where j.id = held.id
)
select id, cancel_at
from held
