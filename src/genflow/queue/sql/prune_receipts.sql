-- Late receipts of a month ago: their servers were asked long since. Locks: the rows, skipping those at work.
-- Index: late_receipts_prune.
with old as materialized (
    select ctid
    from genflow.late_receipts
    where seen_at < genflow.clock() - interval '30 d'
    order by seen_at
    limit %(limit)s
    for update skip locked
)
delete from genflow.late_receipts as r
using old
where r.ctid = old.ctid
returning r.submit
