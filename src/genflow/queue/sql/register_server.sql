-- A server becomes known to the fleet by its name. Locks: the server's row. Index: servers_name_key.
insert into genflow.servers as known (name, slots, tags, vram)
values (%(name)s, %(slots)s, %(tags)s, %(vram)s)
on conflict (name) do update
    set slots = excluded.slots, tags = excluded.tags, vram = coalesce(excluded.vram, known.vram)
returning id, boot
