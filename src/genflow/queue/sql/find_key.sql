-- The key with this prefix, if it works; that it is used is noted once an hour. Locks: its row, then. Index:
-- api_keys_prefix_key.
with used as (
    update genflow.api_keys
    set last_used_at = genflow.clock()
    where prefix = %(prefix)s and (ends_at is null or ends_at > genflow.clock())
      and (last_used_at is null or last_used_at < genflow.clock() - interval '1 hour')
)
select k.id, k.name, k.prefix, k.sha256, k.tenant_id, t.name as tenant, k.role, k.created_at, k.ends_at, k.last_used_at
from genflow.api_keys as k
join genflow.tenants as t on t.id = k.tenant_id
where k.prefix = %(prefix)s and (k.ends_at is null or k.ends_at > genflow.clock())
