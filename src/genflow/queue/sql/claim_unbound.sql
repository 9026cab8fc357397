-- Claim jobs for one server, at most its free slots, counted here over all workers; none while it is quarantined or
-- draining, whatever this worker's last probe of it said, nor before what was given up there is stopped.
-- Only jobs of the classes that the server can run, by (priority, vtime, seq) over all of them: the first few of each
-- class, merged, and answered in that order. A job that failed here, or ran out of such memory, is left to another server
-- that could take it, for at most five minutes after its last attempt. The answer names the server that has the job's
-- inputs, or else that of the attempt before, where it would do as well.
-- Locks: the claimed rows, skipping those of others. Index: jobs_claim, jobs_pkey, submits_slot, servers_pkey,
-- chores_due, attempts_pkey, server_file_refs_job.
with free as (
    select case when (select state from genflow.servers where id = %(server)s) = 1
                 and not exists (
                     select 1 from genflow.chores as c
                     where c.server_id = %(server)s and c.kind = 'stop' and c.payload is null)
                then greatest(0, least(%(limit)s, %(slots)s - count(*)))::int else 0 end as slots
    from genflow.submits
    where server_id = %(server)s and state < 10
), heads as materialized (
    select head.id
    from unnest(%(classes)s::int[], %(elsewhere)s::boolean[], %(bigger)s::bigint[]) as able (class_id, elsewhere, bigger)
    cross join lateral (
        select j.id, j.priority, j.vtime, j.seq
        from genflow.jobs as j
        where j.state = 2 and j.server_id is null and j.class_id = able.class_id
          and (j.start_by is null or j.start_by > genflow.clock())
          and (j.avoid_id is null or j.avoid_id <> %(server)s or not able.elsewhere
               or j.lease_until < genflow.clock() - interval '5 minutes')
          and (j.min_vram is null or able.bigger is null or able.bigger <= j.min_vram
               or (select vram from genflow.servers where id = %(server)s) > j.min_vram
               or j.lease_until < genflow.clock() - interval '5 minutes')
        order by j.priority, j.vtime, j.seq
        limit (select case when slots > 0 then slots + 32 / cardinality(%(classes)s::int[]) else 0 end from free)
    ) as head
    order by head.priority, head.vtime, head.seq
    limit (select case when slots > 0 then slots + 32 else 0 end from free)
), picked as materialized (
    select id, avoid_id, attempt, step
    from genflow.jobs
    where id = any(array(select id from heads)) and state + 0 = 2 and server_id is null  -- + 0: by id, not by jobs_claim
    order by priority, vtime, seq
    limit (select slots from free)
    for update skip locked
), claimed as (
    update genflow.jobs as j
    set state = 3, worker_id = %(worker)s, token = j.token + 1,
        lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
    from picked
    left join lateral (
        select v.id, exists (
            select 1 from genflow.server_file_refs as r where r.job_id = picked.id and r.server_id = v.id) as uploaded
        from genflow.servers as v
        where (picked.attempt > 0 or picked.step > 0) and v.state = 1 and v.id is distinct from picked.avoid_id
          and v.id = coalesce(
              (select r.server_id from genflow.server_file_refs as r
               where r.job_id = picked.id and r.server_id is distinct from picked.avoid_id order by r.server_id limit 1),
              (select a.server_id from genflow.attempts as a where a.job_id = picked.id order by a.no desc limit 1))
          and not exists (
              select 1 from genflow.chores as c where c.server_id = v.id and c.kind = 'stop' and c.payload is null)
    ) as before on true
    where j.id = picked.id
    returning j.id, j.token, j.server_id, j.class_id, null::float8 as since_last_holder_s, before.id as previous_id,
              coalesce(before.uploaded, false) as uploaded, j.priority, j.vtime, j.seq
)
select * from claimed order by priority, vtime, seq
