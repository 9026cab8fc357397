-- Strike the rows of blobs whose bytes are gone for longer than any put lasts from its bytes to its record.
-- Locks: the blobs' rows, skipping those at work. Index: blobs_going, blobs_pkey.
with old as materialized (
    select hash
    from genflow.blobs
    where state = 3 and touched_at < genflow.clock() - %(settle_s)s * interval '1 s'
    order by touched_at
    limit %(limit)s
    for update skip locked
)
delete from genflow.blobs as b
using old
where b.hash = old.hash
returning b.hash
