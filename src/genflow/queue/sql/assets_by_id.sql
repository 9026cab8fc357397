-- Assets of one tenant that still stand. Locks: none. Index: assets_pkey.
select id, blob_hash, kind, job_id, node_id, name, type, content_type, size, tags, created_at, expires_at
from genflow.assets
where id = any(%(assets)s) and tenant_id = %(tenant)s and (expires_at is null or expires_at > genflow.clock())
