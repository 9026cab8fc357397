-- The job's result: blobs, assets and the terminal state in one transaction. Where a cancel was asked the job ends
-- canceled and the outputs are dropped. A blob that clean-up is deleting, or has deleted since
-- `began`, when the bytes began to come in, is refused (take_blobs.sql): no row is changed.
-- Locks: the job's row (fence), then the blobs' rows in hash order. Index: jobs_pkey, blobs_pkey, assets_pkey,
-- attempts_pkey, submits_pkey.
with held as materialized (
    select id, tenant_id, cancel_at, attempt, submit_no
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
), complete as (
    select count(*) = 0 as ok
    from outputs
    where not exists (select 1 from kept where kept.hash = outputs.hash)
), stored as (
    insert into genflow.assets (id, tenant_id, blob_hash, kind, job_id, submit_no, node_id, key, idx, name, type,
                                content_type, size, content, created_at, expires_at)
    select o.id, held.tenant_id, o.hash, 'output', held.id, held.submit_no, o.node_id, o.key, o.idx, o.name, o.type,
           o.content_type, o.size, o.content, genflow.clock(), genflow.clock() + %(retention_s)s * interval '1 s'
    from held, outputs as o, complete
    where complete.ok
    on conflict (id) do nothing
), judged as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), outcome = case when held.cancel_at is null then 'succeeded' else 'canceled' end,
        gpu_ms = u.exec_end_ms - u.exec_start_ms
    from held, complete, genflow.submits as u
    where complete.ok and a.job_id = held.id and a.no = held.attempt and u.job_id = held.id and u.no = held.submit_no
), ended as (
    update genflow.jobs as j
    set state = case when held.cancel_at is null then 10 else 12 end, step = 4, server_id = null,
        ended_at = genflow.clock(), expires_at = genflow.clock() + %(retention_s)s * interval '1 s',
        token = j.token + 1, worker_id = null, lease_until = genflow.clock(), deadline_at = null
    from held, complete
    where j.id = held.id and complete.ok
    returning j.state
)
select (select count(*) from held) as held, (select state from ended) as state
