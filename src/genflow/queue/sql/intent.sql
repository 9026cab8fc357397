-- Write a submit down before anything leaves. Nothing is inserted where a cancel is asked, the start-by has passed, or
-- no slot of the server is free, the server is quarantined or draining, or a chore is stopping an earlier submit of the
-- job there; two that take one slot at once meet in the unique index.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_slot, servers_pkey, attempts_pkey, chores_job.
with held as materialized (
    select id, attempt, submit_no
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s and cancel_at is null
      and (start_by is null or start_by > genflow.clock() or executing_at is not null)
    for update
), free as (
    select slot
    from generate_series(1, %(slots)s) as slot
    where not exists (
        select 1 from genflow.submits as u where u.server_id = %(server)s and u.slot = slot.slot and u.state < 10)
      and (select v.state from genflow.servers as v where v.id = %(server)s) = 1
      and not exists (
        select 1 from genflow.chores as c
        where c.job_id = %(job)s and c.server_id = %(server)s and c.lease_until > genflow.clock())
    order by slot
    limit 1
), written as (
    insert into genflow.submits (job_id, no, uuid, attempt, server_id, boot, slot, token, state, created_at)
    select held.id, held.submit_no + 1, %(submit)s, held.attempt + 1, %(server)s, %(boot)s, free.slot, %(token)s, 1,
           genflow.clock()
    from held, free
    returning no, attempt
), tried as (
    insert into genflow.attempts as a (job_id, no, server_id, worker_id, started_at)
    select held.id, written.attempt, %(server)s, %(worker)s, genflow.clock()
    from held, written
    on conflict (job_id, no) do update
        set server_id = excluded.server_id, worker_id = excluded.worker_id, started_at = excluded.started_at,
            ended_at = null, outcome = null, class = null, code = null, reason = null
), bound as (
    update genflow.jobs as j
    set submit_no = written.no, server_id = %(server)s,
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held, written
    where j.id = held.id
)
select (select count(*) from held) as held, (select no from written) as no, (select attempt from written) as attempt
