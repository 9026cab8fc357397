-- Keep a server's description of its nodes, by its hash. Locks: the row. Index: object_info_pkey.
insert into genflow.object_info (hash, body, seen_at)
values (%(hash)s, %(body)s, genflow.clock())
on conflict (hash) do update set seen_at = excluded.seen_at
