-- Assets of one tenant, or (null) of any, that still stand. Locks: none. Index: assets_pkey.
select id, blob_hash, kind, job_id, node_id, name, type, content_type, size, tags, created_at, expires_at
from genflow.assets
where id = any(%(assets)s) and (%(tenant)s::int is null or tenant_id = %(tenant)s)
  and (expires_at is null or expires_at > genflow.clock())
