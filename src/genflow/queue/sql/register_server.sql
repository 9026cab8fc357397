-- A server becomes known to the fleet by its name; one that was forgotten is back, its stop chores first. Locks: the server's row. Index: servers_name_key.
insert into genflow.servers as known (name, slots, tags, vram)
values (%(name)s, %(slots)s, %(tags)s, %(vram)s)
on conflict (name) do update
    set state = case when known.state = 4 then 1 else known.state end,
        reason = case when known.state <> 4 then known.reason end, slots = excluded.slots, tags = excluded.tags, vram = coalesce(excluded.vram, known.vram)
returning id, boot
