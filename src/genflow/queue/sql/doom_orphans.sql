-- Bytes that lie in the store without a row, from a crash between a put and its record: they go by the same way as others.
-- Locks: the new rows. Index: blobs_pkey.
insert into genflow.blobs (hash, sha256, size, state, touched_at)
select found.hash, '', 0, 2, '-infinity'
from unnest(%(hashes)s::bytea[]) as found (hash)
where not exists (select 1 from genflow.blobs as b where b.hash = found.hash)
on conflict do nothing
returning hash
