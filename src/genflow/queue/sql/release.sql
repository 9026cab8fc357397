-- Give a job back without judging it: still bound where its submit is open or its run waits to be collected.
-- A cancel that was asked and has nothing left to stop ends it here.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select id, cancel_at, step,
           exists (select 1 from genflow.submits as u where u.job_id = jobs.id and u.state < 10) as open
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
)
update genflow.jobs as j
set state = case when held.cancel_at is not null and not held.open then 12
                 when %(delay_s)s > 0 then 1
                 else 2 end,
    run_at = case when %(delay_s)s > 0 then genflow.clock() + %(delay_s)s * interval '1 s' end,
    ended_at = case when held.cancel_at is not null and not held.open then genflow.clock() end,
    expires_at = case when held.cancel_at is not null and not held.open
                      then genflow.clock() + (j.expires_at - j.created_at) else j.expires_at end,
    server_id = case when held.open or held.step = 3 then j.server_id end,
    collects = j.collects + %(collect_failed)s::int, moved = j.moved + %(handed_over)s::int,
    token = j.token + 1, worker_id = null, lease_until = genflow.clock(), deadline_at = null
from held
where j.id = held.id
returning j.id, j.state
