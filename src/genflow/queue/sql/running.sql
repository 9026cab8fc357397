-- These prompts were seen running: their jobs show as running from now on, and a hard deadline stands. A row for each
-- job that is held. Locks: the jobs' rows in the order of ids (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select j.id, j.cancel_at, asked.place, asked.no, asked.deadline_s
    from unnest(%(job)s::uuid[], %(token)s::bigint[], %(no)s::int[], %(deadline_s)s::float8[])
        with ordinality as asked (job, token, no, deadline_s, place)
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), executing as (
    update genflow.submits as u
    set state = 3, executed = true, running_at = genflow.clock(), accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = held.no and u.state < 3
), kept as (
    update genflow.jobs as j
    set executing_at = coalesce(j.executing_at, genflow.clock()), step = greatest(j.step, 2::smallint),
        deadline_at = coalesce(j.deadline_at, genflow.clock() + held.deadline_s * interval '1 s'),
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    where j.id = held.id
)
select place, cancel_at
from held
