-- The secret of this name, made by whoever comes first. The update changes nothing: it has the second of two at the same
-- time wait for the first, and answers the first one's. Locks: its row. Index: secrets_pkey.
insert into genflow.secrets as known (name, value)
values (%(name)s, %(value)s)
on conflict (name) do update set value = known.value
returning value
