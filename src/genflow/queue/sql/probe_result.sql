-- What one worker's probe saw of a server. A quarantine ends by its time or by a new boot; where the server has to run a
-- trial first, one worker is told to have it run then, and the others wait for `trial_s` seconds. Answers how many prompts
-- of the fleet are there, so that those of strangers can be told.
-- Locks: the server's row, then the worker's word on it. Index: primary keys, submits_slot.
with before as materialized (
    select id, state = 2 and (quarantined_until <= genflow.clock()
                              or (%(boot)s::uuid is not null and boot is distinct from %(boot)s::uuid)) as due,
           needs_run,
           exists (select 1 from genflow.submits as u where u.server_id = servers.id and u.state < 10) as busy
    from genflow.servers
    where id = %(server)s
    for update
), seen as (
    insert into genflow.worker_servers as ws (worker_id, server_id, url, healthy, seen_at)
    values (%(worker)s, %(server)s, %(url)s, %(healthy)s, genflow.clock())
    on conflict (worker_id, server_id) do update
        set url = excluded.url, healthy = excluded.healthy, seen_at = excluded.seen_at
)
update genflow.servers as v
set last_seen_at = case when %(healthy)s then genflow.clock() else v.last_seen_at end,
    has_jobs_route = coalesce(%(has_jobs_route)s, v.has_jobs_route),
    guard = coalesce(%(guard)s, v.guard),
    vram = coalesce(%(vram)s::bigint, v.vram),
    capabilities_hash = coalesce(%(capabilities_hash)s, v.capabilities_hash),
    learned_at = case when %(capabilities_hash)s is null then v.learned_at else genflow.clock() end,
    state = case when before.due and not before.needs_run then 1 else v.state end,
    reason = case when before.due and not before.needs_run then null else v.reason end,
    quarantined_until = case when before.due and before.needs_run and %(healthy)s and not before.busy
                             then genflow.clock() + %(trial_s)s * interval '1 s' else v.quarantined_until end,
    boot = coalesce(%(boot)s::uuid, v.boot)
from before
where v.id = before.id
returning v.state, v.reason, v.capabilities_hash,
          before.due and before.needs_run and %(healthy)s and not before.busy as trial,
          (select count(*)::int from genflow.submits as u where u.server_id = v.id and u.state in (2, 3)) as accepted
