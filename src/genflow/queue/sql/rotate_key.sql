-- A new key in place of the one of this name, which ends after a while. Zero rows: none of this name works. Sent again after
-- a lost commit it finds its own. Locks: the old key's row. Index: api_keys_name, api_keys_prefix_key.
with old as materialized (
    update genflow.api_keys
    set ends_at = genflow.clock() + %(keep_s)s * interval '1 s'
    where name = %(name)s and ends_at is null and prefix <> %(prefix)s
    returning *
), made as (
    insert into genflow.api_keys (tenant_id, name, prefix, sha256, role)
    select old.tenant_id, old.name, %(prefix)s, %(sha256)s, old.role from old
    returning *
), k as (
    select * from made
    union all
    select * from genflow.api_keys where prefix = %(prefix)s
    limit 1
)
select k.id, k.name, k.prefix, k.sha256, k.tenant_id, t.name as tenant, k.role, k.created_at, k.ends_at, k.last_used_at
from k
join genflow.tenants as t on t.id = k.tenant_id
