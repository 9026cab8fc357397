-- An asset over bytes that this tenant has: the one with the same place and tags, which then stands for longer at least, or a new
-- one. Zero rows: no asset of this tenant has these bytes, or they are being deleted.
-- Locks: the blob's row, the old asset's row. Index: blobs_pkey, assets_blob, assets_pkey.
with blob as (
    update genflow.blobs as b
    set touched_at = genflow.clock()
    where b.hash = %(hash)s and b.state = 1
      and exists (
          select 1 from genflow.assets as a
          where a.tenant_id = %(tenant)s and a.blob_hash = b.hash
            and (a.expires_at is null or a.expires_at > genflow.clock()))
    returning b.hash, b.size
), source as (
    select a.name, a.type, a.content_type
    from genflow.assets as a, blob
    where a.tenant_id = %(tenant)s and a.blob_hash = blob.hash
      and (a.expires_at is null or a.expires_at > genflow.clock())
    order by a.created_at desc
    limit 1
), same as (
    update genflow.assets as a
    set expires_at = case when a.expires_at is not null  -- null is never, which greatest() would leave out
                          then greatest(a.expires_at, genflow.clock() + %(keep_s)s * interval '1 s') end
    from (
        select known.id
        from genflow.assets as known, blob, source
        where known.tenant_id = %(tenant)s and known.blob_hash = blob.hash and known.kind = 'upload'
          and known.name = coalesce(%(name)s, source.name) and known.tags = %(tags)s
          and (known.expires_at is null or known.expires_at > genflow.clock())
        order by known.created_at desc
        limit 1
    ) as found
    where a.id = found.id
    returning a.id
), made as (
    insert into genflow.assets (id, tenant_id, blob_hash, kind, name, type, content_type, size, tags, created_at, expires_at)
    select %(asset)s, %(tenant)s, blob.hash, 'upload', coalesce(%(name)s, source.name), source.type, source.content_type,
           blob.size, %(tags)s, genflow.clock(), genflow.clock() + %(keep_s)s * interval '1 s'
    from blob, source
    where not exists (select 1 from same)
    returning id
)
select id, id = %(asset)s as created from same  -- its own, where it is sent again after a lost commit
union all
select id, true from made
