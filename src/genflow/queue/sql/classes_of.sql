-- The numbers of these classes, each written down with the first jobs that need just that. Sent again it finds them.
-- Locks: rows of new classes, in the order of their hashes, until the end of this statement.
-- Index: classes_needs_hash_key.
with asked as materialized (
    select hash, needs from unnest(%(hashes)s::bytea[], %(needs)s::text[]) as a (hash, needs)
), known as materialized (
    select c.id, c.needs_hash from genflow.classes as c join asked on asked.hash = c.needs_hash
), new as (
    insert into genflow.classes as c (needs_hash, needs)
    select hash, needs::json
    from asked
    where hash not in (select needs_hash from known)
    order by hash
    on conflict (needs_hash) do update set needs = c.needs
    returning id, needs_hash
)
select id, needs_hash from known
union all
select id, needs_hash from new
