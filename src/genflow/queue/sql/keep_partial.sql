-- What the finished nodes of a failed run gave is kept beside the failure, marked, for the job that is about to end. What
-- clean-up is deleting, or has since `began`, is left out. Locks: the job's row (fence), then the blobs' rows in hash order.
-- Index: jobs_pkey, blobs_pkey, assets_pkey.
with held as materialized (
    select id, tenant_id, cancel_at, submit_no
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), outputs as (
    select o.*
    from held, unnest(
        %(ids)s::uuid[], %(hashes)s::bytea[], %(sha256s)s::bytea[], %(sizes)s::bigint[], %(nodes)s::text[],
        %(keys)s::text[], %(idxs)s::int[], %(names)s::text[], %(types)s::text[], %(content_types)s::text[],
        %(texts)s::text[]
    ) as o (id, hash, sha256, size, node_id, key, idx, name, type, content_type, content)
    where held.cancel_at is null
), kept as (
    insert into genflow.blobs as known (hash, sha256, size, touched_at)
    select distinct on (hash) hash, sha256, size, genflow.clock()
    from outputs
    order by hash
    on conflict (hash) do update
        set state = 1, sha256 = excluded.sha256, size = excluded.size, touched_at = excluded.touched_at
        where known.state = 1 or (known.state = 3 and known.touched_at < %(began)s::timestamptz)
    returning hash
), stored as (
    insert into genflow.assets (id, tenant_id, blob_hash, kind, job_id, submit_no, node_id, key, idx, name, type,
                                content_type, size, content, partial, created_at, expires_at)
    select o.id, held.tenant_id, o.hash, 'output', held.id, held.submit_no, o.node_id, o.key, o.idx, o.name, o.type,
           o.content_type, o.size, o.content, true, genflow.clock(), genflow.clock() + %(retention_s)s * interval '1 s'
    from held, outputs as o
    join kept using (hash)
    on conflict (id) do nothing
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id
