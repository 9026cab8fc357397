-- Take blobs whose bytes are to go: those that no asset refers to and that nobody touched for `grace_s` seconds, or whose
-- owner asked for it (-infinity); and those that another sweeper took more than `lease_s` seconds ago and did not finish.
-- What turns out to be in use is not looked at again before one of its records goes.
--
-- A blob that is put again meanwhile is never lost. Clean-up goes: take (here, state 2, committed), delete the bytes, gone
-- (gone_blobs.sql, state 3). Who puts goes: look at the clock (`began`), put the bytes, record them: create_upload.sql,
-- finish.sql and keep_partial.sql, whose `on conflict` always judges the newest version of the blob's row.
--   recorded before the take: the take skips the locked row, or reads it again behind the lock and finds it touched.
--   recorded between take and gone: refused; the bytes are sent again.
--   recorded after gone: accepted only if `began` is later than gone, for then the bytes came after the deletion.
--   recorded after the row of a gone blob was struck (bury_blobs.sql): an hour later, when no put from before is under way.
-- One sweeper deletes at a time: a take is good for half of `lease_s`, on the sweeper's own clock, read before it was sent.
-- Locks: the blobs' rows, skipping those at work. Index: blobs_loose, blobs_going, assets_blob, blobs_pkey.
with loose as materialized (
    select hash
    from genflow.blobs
    where state = 1 and touched_at < genflow.clock() - %(grace_s)s * interval '1 s'
    order by touched_at
    limit %(limit)s
    for update skip locked
), left_over as materialized (
    select hash
    from genflow.blobs
    where state = 2 and touched_at < genflow.clock() - %(lease_s)s * interval '1 s'
    order by touched_at
    limit %(limit)s
    for update skip locked
), judged as materialized (
    select loose.hash, exists (select 1 from genflow.assets as a where a.blob_hash = loose.hash) as used
    from loose
    union all
    select hash, false from left_over
), taken as (
    update genflow.blobs as b
    set state = case when judged.used then 1 else 2 end, touched_at = case when not judged.used then genflow.clock() end
    from judged
    where b.hash = judged.hash
    returning b.hash, b.state, b.touched_at
)
select hash, state, touched_at from taken
