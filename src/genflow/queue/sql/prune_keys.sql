-- Idempotency keys past their time. Ids that a file or a message gave have none: a known id runs nothing.
-- Locks: the keys' rows, skipping those at work. Index: job_keys_expire, job_keys_pkey.
with old as materialized (
    select tenant_id, scope, key
    from genflow.job_keys
    where expires_at < genflow.clock()
    order by expires_at
    limit %(limit)s
    for update skip locked
)
delete from genflow.job_keys as k
using old
where k.tenant_id = old.tenant_id and k.scope = old.scope and k.key = old.key
returning k.key
