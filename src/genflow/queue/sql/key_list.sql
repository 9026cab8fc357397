-- Keys that work, by tenant and name. Locks: none. A small table.
select k.id, k.name, k.prefix, k.sha256, k.tenant_id, t.name as tenant, k.role, k.created_at, k.ends_at, k.last_used_at
from genflow.api_keys as k
join genflow.tenants as t on t.id = k.tenant_id
where k.ends_at is null or k.ends_at > genflow.clock()
order by t.name, k.name, k.id
