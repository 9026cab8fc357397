-- The bytes of these blobs are deleted, by whoever took them at `taken_at`. Their rows stand for a while: take_blobs.sql.
-- Locks: the blobs' rows. Index: blobs_going.
update genflow.blobs
set state = 3, touched_at = genflow.clock()
where hash = any(%(hashes)s::bytea[]) and state = 2 and touched_at = %(taken_at)s
