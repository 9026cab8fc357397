-- Record a file that is already in the store, under a key or without one; `known` says whether this tenant had its bytes.
-- Zero rows: the blob is being deleted, or was after `began`, when its bytes began to come in (take_blobs.sql), and the key
-- stays as it was; or the key is in use, and the blob's row is left for clean-up. The statement sent again finds its own
-- asset and key. Locks: the blob's row, then the key's row. Index: assets_blob, blobs_pkey, job_keys_pkey, assets_pkey.
with before as (
    select exists (
        select 1 from genflow.assets
        where tenant_id = %(tenant)s and blob_hash = %(hash)s and id <> %(asset)s
          and (expires_at is null or expires_at > genflow.clock())) as known
), kept as (
    insert into genflow.blobs as known (hash, sha256, size, touched_at)
    values (%(hash)s, %(sha256)s, %(size)s, genflow.clock())
    on conflict (hash) do update
        set state = 1, sha256 = excluded.sha256, size = excluded.size, touched_at = excluded.touched_at
        where known.state = 1 or (known.state = 3 and known.touched_at < %(began)s::timestamptz)
    returning hash, size
), claimed_key as (
    insert into genflow.job_keys as known (tenant_id, scope, key, job_id, body_hash, expires_at)
    select %(tenant)s, 'upload', %(key)s, %(asset)s, hash, genflow.clock() + %(key_ttl)s * interval '1 s'
    from kept
    where %(key)s::text is not null
    on conflict (tenant_id, scope, key) do update
        set job_id = excluded.job_id, body_hash = excluded.body_hash, expires_at = excluded.expires_at
        where known.expires_at < genflow.clock() or known.job_id = excluded.job_id
    returning 1
), made as (
    insert into genflow.assets (id, tenant_id, blob_hash, kind, name, type, content_type, size, tags, created_at, expires_at)
    select %(asset)s, %(tenant)s, hash, 'upload', %(name)s, %(type)s, %(content_type)s, size, %(tags)s, genflow.clock(),
           genflow.clock() + %(keep_s)s * interval '1 s'
    from kept
    where %(key)s::text is null or exists (select 1 from claimed_key)
    on conflict (id) do update set blob_hash = excluded.blob_hash  -- sent again after a lost commit
    returning id
)
select made.id, before.known from made, before
