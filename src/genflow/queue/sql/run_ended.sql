-- Checkpoint: the run ended well and is to be collected; its slot is free from here, its attempt is spent.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select id, cancel_at
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), closed as (
    update genflow.submits as u
    set state = 10, executed = u.executed or %(executed)s, entry = %(entry)s, exec_start_ms = %(exec_start_ms)s,
        exec_end_ms = %(exec_end_ms)s, ended_at = genflow.clock(), accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state < 10
    returning u.attempt
), kept as (
    update genflow.jobs as j
    set step = 3, executing_at = coalesce(j.executing_at, genflow.clock()), deadline_at = null,
        attempt = greatest(j.attempt, (select attempt from closed)),
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    where j.id = held.id
)
select id, cancel_at
from held
