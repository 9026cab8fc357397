-- Descriptions of nodes that no server had for a day. Locks: the rows, skipping those at work. Few rows: no index.
with old as materialized (
    select hash
    from genflow.object_info
    where seen_at < genflow.clock() - interval '1 day'
      and hash not in (select capabilities_hash from genflow.servers where capabilities_hash is not null)
    limit %(limit)s
    for update skip locked
)
delete from genflow.object_info as o
using old
where o.hash = old.hash
returning o.hash
