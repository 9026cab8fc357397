-- What one worker's probe saw of a server; a new boot ends its quarantine. Answers how many prompts of the fleet are
-- there, so that those of strangers can be told. Locks: the two rows. Index: primary keys, submits_slot.
with seen as (
    insert into genflow.worker_servers as ws (worker_id, server_id, url, healthy, seen_at)
    values (%(worker)s, %(server)s, %(url)s, %(healthy)s, genflow.clock())
    on conflict (worker_id, server_id) do update
        set url = excluded.url, healthy = excluded.healthy, seen_at = excluded.seen_at
)
update genflow.servers
set last_seen_at = case when %(healthy)s then genflow.clock() else last_seen_at end,
    has_jobs_route = coalesce(%(has_jobs_route)s, has_jobs_route),
    vram = coalesce(%(vram)s::bigint, vram),
    capabilities_hash = coalesce(%(capabilities_hash)s, capabilities_hash),
    state = case when state = 2 and (quarantined_until <= genflow.clock()
                                     or (%(boot)s::uuid is not null and boot is distinct from %(boot)s::uuid))
                 then 1 else state end,
    reason = case when state = 2 and (quarantined_until <= genflow.clock()
                                      or (%(boot)s::uuid is not null and boot is distinct from %(boot)s::uuid))
                  then null else reason end,
    boot = coalesce(%(boot)s::uuid, boot)
where id = %(server)s
returning state, reason, capabilities_hash,
          (select count(*)::int from genflow.submits as u where u.server_id = %(server)s and u.state in (2, 3))
          as accepted
