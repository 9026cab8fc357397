-- Write submits down before anything leaves: a row for each job that is held, with what was written. Nothing is where a
-- cancel is asked, the start-by has passed, or no slot of the server is free, the server is quarantined or draining, or a
-- chore is stopping an earlier submit of the job there. Several for one server take different slots; those of two
-- workers meet in the unique index, in the order of slots.
-- Locks: the jobs' rows in the order of ids (fence). Index: jobs_pkey, submits_slot, servers_pkey, attempts_pkey,
-- chores_job.
with asked as materialized (
    select *
    from unnest(
        %(job)s::uuid[], %(token)s::bigint[], %(submit)s::uuid[], %(server)s::int[], %(boot)s::uuid[], %(slots)s::int[]
    ) with ordinality as asked (job, token, submit, server, boot, slots, place)
), held as materialized (
    select j.id, j.attempt, j.submit_no, asked.place, asked.token, asked.submit, asked.server, asked.boot
    from asked
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s and j.cancel_at is null
      and (j.start_by is null or j.start_by > genflow.clock() or j.executing_at is not null)
    order by j.id
    for update of j
), free as (
    select s.server, slot.slot, row_number() over (partition by s.server order by slot.slot) as nth
    from (select server, max(slots) as slots from asked group by server) as s
    cross join lateral generate_series(1, s.slots) as slot
    where not exists (
        select 1 from genflow.submits as u where u.server_id = s.server and u.slot = slot.slot and u.state < 10)
      and (select v.state from genflow.servers as v where v.id = s.server) = 1
), willing as (
    select held.*, row_number() over (partition by held.server order by held.place) as nth
    from held
    where not exists (
        select 1 from genflow.chores as c
        where c.job_id = held.id and c.server_id = held.server and c.lease_until > genflow.clock())
), written as (
    insert into genflow.submits (job_id, no, uuid, attempt, server_id, boot, slot, token, state, created_at)
    select willing.id, willing.submit_no + 1, willing.submit, willing.attempt + 1, willing.server, willing.boot, free.slot,
           willing.token, 1, genflow.clock()
    from willing
    join free using (server, nth)
    order by willing.server, free.slot
    returning job_id, no, attempt, server_id
), tried as (
    insert into genflow.attempts as a (job_id, no, server_id, worker_id, started_at)
    select job_id, attempt, server_id, %(worker)s, genflow.clock()
    from written
    on conflict (job_id, no) do update
        set server_id = excluded.server_id, worker_id = excluded.worker_id, started_at = excluded.started_at,
            ended_at = null, outcome = null, class = null, code = null, reason = null
), bound as (
    update genflow.jobs as j
    set submit_no = written.no, server_id = written.server_id,
        lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from written
    where j.id = written.job_id
)
select held.place, written.no, written.attempt
from held
left join written on written.job_id = held.id
