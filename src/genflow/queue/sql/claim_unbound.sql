-- Claim jobs for one server, at most its free slots, counted here over all workers; none while it is quarantined or
-- draining, whatever this worker's last probe of it said, nor before what was given up there is stopped.
-- Locks: the claimed rows, skipping those of others. Index: jobs_claim, submits_slot, servers_pkey, chores_due.
with free as (
    select case when (select state from genflow.servers where id = %(server)s) = 1
                 and not exists (
                     select 1 from genflow.chores as c
                     where c.server_id = %(server)s and c.kind = 'stop' and c.payload is null)
                then greatest(0, least(%(limit)s, %(slots)s - count(*)))::int else 0 end as slots
    from genflow.submits
    where server_id = %(server)s and state < 10
), picked as materialized (
    select id
    from genflow.jobs
    where state = 2 and server_id is null and class_id = 0
      and (start_by is null or start_by > genflow.clock())
    order by class_id, priority, vtime, seq
    limit (select slots from free)
    for update skip locked
)
update genflow.jobs as j
set state = 3, worker_id = %(worker)s, token = j.token + 1,
    lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
from picked
where j.id = picked.id
returning j.id, j.token, j.server_id, null::float8 as since_last_holder_s
