-- A new key, and its tenant where that is new. Zero rows: a key of this name works already. Sent again after a lost commit
-- it finds its own. Locks: the tenant's row. Index: tenants_name_key, api_keys_name, api_keys_prefix_key.
with made_tenant as (
    insert into genflow.tenants (name) values (%(tenant)s)
    on conflict (name) do nothing
    returning id, name
), t as (
    select id, name from made_tenant
    union all
    select id, name from genflow.tenants where name = %(tenant)s
    limit 1
), made as (
    insert into genflow.api_keys (tenant_id, name, prefix, sha256, role)
    select t.id, %(name)s, %(prefix)s, %(sha256)s, %(role)s from t
    where not exists (
        select 1 from genflow.api_keys as other
        where other.name = %(name)s and other.ends_at is null and other.prefix <> %(prefix)s)
    on conflict do nothing
    returning *
), k as (
    select * from made
    union all
    select * from genflow.api_keys where prefix = %(prefix)s
    limit 1
)
select k.id, k.name, k.prefix, k.sha256, k.tenant_id, t.name as tenant, k.role, k.created_at, k.ends_at, k.last_used_at
from k, t
