-- Keep a server's description of its nodes, by its hash, and drop those that no server had for a day.
-- Locks: the rows. Index: object_info_pkey.
with old as (
    delete from genflow.object_info
    where seen_at < genflow.clock() - interval '1 day' and hash <> %(hash)s
      and hash not in (select capabilities_hash from genflow.servers where capabilities_hash is not null)
)
insert into genflow.object_info (hash, body, seen_at)
values (%(hash)s, %(body)s, genflow.clock())
on conflict (hash) do update set seen_at = excluded.seen_at
