-- All processes on one database share one store: the first to come names it, the others compare.
-- Locks: the one row. Index: stores_pkey.
with first as (
    insert into genflow.stores (marker, place)
    values (%(marker)s, %(place)s)
    on conflict (id) do nothing
    returning marker, place
)
select marker, place from first
union all
select marker, place from genflow.stores
limit 1
