-- Record a photo that is already in the store. Locks: the blob's row (a blob being deleted is refused: zero rows).
-- Index: blobs_pkey, assets_pkey.
with kept as (
    insert into genflow.blobs as known (hash, sha256, size, touched_at)
    values (%(hash)s, %(sha256)s, %(size)s, genflow.clock())
    on conflict (hash) do update set touched_at = excluded.touched_at where known.state = 1
    returning hash, size
)
insert into genflow.assets (id, tenant_id, blob_hash, kind, name, type, content_type, size, created_at, expires_at)
select %(asset)s, %(tenant)s, hash, 'upload', %(name)s, %(type)s, %(content_type)s, size, genflow.clock(),
       genflow.clock() + %(retention_s)s * interval '1 s'
from kept
on conflict (id) do update set blob_hash = excluded.blob_hash  -- sent again after a lost commit
returning id
