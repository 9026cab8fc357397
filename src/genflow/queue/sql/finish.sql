-- The results of jobs: blobs, assets and the terminal state in one transaction. A row for each job that is held; one
-- whose cancel was asked ends canceled and its outputs are dropped. A blob that clean-up is deleting, or has deleted
-- since `began`, when the bytes began to come in, is refused (take_blobs.sql): that job stays as it is, without a state.
-- Where two jobs bring the same bytes, the later began decides: it put them there anew, for both.
-- Locks: the jobs' rows in the order of ids (fence), then the blobs' rows in hash order.
-- Index: jobs_pkey, blobs_pkey, assets_pkey, attempts_pkey, submits_pkey.
with held as materialized (
    select j.id, j.tenant_id, j.cancel_at, j.attempt, j.submit_no, asked.place, asked.began
    from unnest(%(job)s::uuid[], %(token)s::bigint[], %(began)s::timestamptz[])
        with ordinality as asked (job, token, began, place)
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), outputs as (
    select held.id as job_id, held.began, o.*
    from unnest(
        %(of)s::int[], %(ids)s::uuid[], %(hashes)s::bytea[], %(sha256s)s::bytea[], %(sizes)s::bigint[], %(nodes)s::text[],
        %(keys)s::text[], %(idxs)s::int[], %(names)s::text[], %(types)s::text[], %(content_types)s::text[],
        %(texts)s::text[]
    ) as o (place, id, hash, sha256, size, node_id, key, idx, name, type, content_type, content)
    join held on held.place = o.place
    where held.cancel_at is null
), brought as (
    select hash, (array_agg(sha256))[1] as sha256, max(size) as size, max(began) as began
    from outputs
    group by hash
), kept as (
    insert into genflow.blobs as known (hash, sha256, size, touched_at)
    select hash, sha256, size, genflow.clock()
    from brought
    order by hash
    on conflict (hash) do update
        set state = 1, sha256 = excluded.sha256, size = excluded.size, touched_at = excluded.touched_at
        where known.state = 1 or (known.state = 3 and known.touched_at < (
            select brought.began from brought where brought.hash = excluded.hash))
    returning hash
), complete as materialized (
    select held.*
    from held
    where not exists (
        select 1 from outputs
        where outputs.job_id = held.id and outputs.hash not in (select hash from kept))
), stored as (
    insert into genflow.assets (id, tenant_id, blob_hash, kind, job_id, submit_no, node_id, key, idx, name, type,
                                content_type, size, content, created_at, expires_at)
    select o.id, complete.tenant_id, o.hash, 'output', complete.id, complete.submit_no, o.node_id, o.key, o.idx, o.name,
           o.type, o.content_type, o.size, o.content, genflow.clock(),
           genflow.clock() + %(retention_s)s * interval '1 s'
    from complete
    join outputs as o on o.job_id = complete.id
    on conflict (id) do nothing
), judged as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), outcome = case when complete.cancel_at is null then 'succeeded' else 'canceled' end,
        gpu_ms = u.exec_end_ms - u.exec_start_ms
    from complete
    join genflow.submits as u on u.job_id = complete.id and u.no = complete.submit_no
    where a.job_id = complete.id and a.no = complete.attempt
), ended as (
    update genflow.jobs as j
    set state = case when complete.cancel_at is null then 10 else 12 end, step = 4, server_id = null,
        ended_at = genflow.clock(), expires_at = genflow.clock() + %(retention_s)s * interval '1 s',
        token = j.token + 1, worker_id = null, lease_until = genflow.clock(), deadline_at = null
    from complete
    where j.id = complete.id
    returning j.id, j.state
)
select held.place, ended.state
from held
left join ended on ended.id = held.id
