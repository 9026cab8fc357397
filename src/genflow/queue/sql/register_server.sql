-- A server becomes known to the fleet by its name. Locks: the server's row. Index: servers_name_key.
insert into genflow.servers as known (name, slots)
values (%(name)s, %(slots)s)
on conflict (name) do update set slots = excluded.slots
returning id
