-- Whether this tenant has an asset of these bytes. Locks: none. Index: assets_blob, blobs_pkey.
select 1 as found
from genflow.assets as a
join genflow.blobs as b on b.hash = a.blob_hash and b.state = 1
where a.tenant_id = %(tenant)s and a.blob_hash = %(hash)s and (a.expires_at is null or a.expires_at > genflow.clock())
limit 1
