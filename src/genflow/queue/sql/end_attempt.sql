-- An attempt ended without a result: close its submit, spend or give back its number, and send the job on its way
-- (1 waiting, 2 queued, 11 failed, 12 canceled) in one transaction, so that a crash can't run a dead letter again.
-- `avoid` makes another server better for the next attempt, `min_vram` one with more memory than these bytes.
-- A job whose cancel was asked is canceled whatever the outcome. An abandoned submit leaves a stop chore.
-- Locks: the job's row (fence). Index: jobs_pkey, attempts_pkey, job_live_pkey, submits_one_open.
with held as materialized (
    select id, cancel_at
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), closed as (
    update genflow.submits as u
    set state = %(submit_state)s, doubtful = %(doubtful)s, executed = u.executed or %(executed)s,
        entry = coalesce(%(entry)s, u.entry), exec_start_ms = %(exec_start_ms)s, exec_end_ms = %(exec_end_ms)s,
        ended_at = genflow.clock()
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state < 10
    returning u.attempt, u.server_id, u.no, u.uuid
), chore as (
    insert into genflow.chores (kind, server_id, job_id, submit_no, submit, due_at)
    select 'stop', closed.server_id, held.id, closed.no, closed.uuid, genflow.clock()
    from held, closed
    where %(submit_state)s = 14
    on conflict do nothing
), judged as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), class = %(class)s, code = %(code)s, reason = %(reason)s, node_id = %(node_id)s,
        node_class = %(node_class)s, gpu_ms = %(exec_end_ms)s::bigint - %(exec_start_ms)s::bigint,
        outcome = case when held.cancel_at is not null then 'canceled' else %(outcome)s end
    from held
    where a.job_id = held.id and a.no = coalesce((select attempt from closed), %(attempt)s)
), silenced as (
    -- What its run told is not the next one's.
    update genflow.job_live as live
    set progress = null, preview = null, updated_at = genflow.clock()
    from held
    where live.job_id = held.id
)
update genflow.jobs as j
set state = case when held.cancel_at is not null then 12 else %(state)s end,
    attempt = case when %(spend)s then greatest(j.attempt, coalesce((select attempt from closed), %(attempt)s, 0))
                   else j.attempt end,
    run_at = case when %(state)s = 1 and held.cancel_at is null
                  then genflow.clock() + %(delay_s)s * interval '1 s' end,
    ended_at = case when %(state)s >= 10 or held.cancel_at is not null then genflow.clock() end,
    expires_at = case when %(state)s >= 10 or held.cancel_at is not null
                      then genflow.clock() + %(retention_s)s * interval '1 s' else j.expires_at end,
    error = case when held.cancel_at is null and %(state)s = 11 then %(error)s::json end,
    avoid_id = case when %(avoid)s then coalesce((select server_id from closed), j.server_id, j.avoid_id)
                    else j.avoid_id end,
    min_vram = greatest(j.min_vram, %(min_vram)s::bigint),
    moved = j.moved + %(moved)s::int,
    server_id = null, step = least(j.step, 1::smallint), collects = 0, deadline_at = null,
    token = j.token + 1, worker_id = null, lease_until = genflow.clock()
from held
where j.id = held.id
returning j.id, j.state
