-- Checkpoint: these runs ended well and are to be collected; their slots are free from here, their attempts are spent. A
-- row for each job that is held. Locks: the jobs' rows in the order of ids (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select j.id, j.cancel_at, asked.*
    from unnest(
        %(job)s::uuid[], %(token)s::bigint[], %(no)s::int[], %(executed)s::boolean[], %(entry)s::text[],
        %(exec_start_ms)s::bigint[], %(exec_end_ms)s::bigint[]
    ) with ordinality as asked (job, token, no, executed, entry, exec_start_ms, exec_end_ms, place)
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), closed as (
    update genflow.submits as u
    set state = 10, executed = u.executed or held.executed, entry = held.entry::json, exec_start_ms = held.exec_start_ms,
        exec_end_ms = held.exec_end_ms, ended_at = genflow.clock(), accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = held.no and u.state < 10
    returning u.job_id, u.attempt
), kept as (
    update genflow.jobs as j
    set step = 3, executing_at = coalesce(j.executing_at, genflow.clock()), deadline_at = null,
        attempt = greatest(j.attempt, closed.attempt),
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    left join closed on closed.job_id = held.id
    where j.id = held.id
)
select place, cancel_at
from held
