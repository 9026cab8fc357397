-- Accept many jobs that carry ids of their own, from a file or a broker: what is new of them, in their order, up to
-- queue_limit (overshoot: what other processes accept at the same time). A row each says what became of it: `new`;
-- `known` under its key, or as a job that came another way, with the newest job that it leads to and whether that has the
-- same body; `full`; or none of these, where another transaction takes its key just now: ask again.
-- The look-ups stand in laterals with a limit, so that each goes by its index: joined, the planner reads whole tables.
-- Locks: the keys' rows in key order. Index: jobs_live, job_keys_pkey, jobs_pkey, job_specs_root, job_specs_pkey.
with asked as materialized (
    select *
    from unnest(
        %(jobs)s::uuid[], %(body_hashes)b::bytea[], %(workflows)b::text[], %(params)b::text[], %(metadata)b::text[],
        %(policies)b::text[], %(priorities)s::smallint[], %(classes)s::int[]
    ) with ordinality as a (job, body_hash, workflow, params, metadata, policy, priority, class_id, place)
), depth as (
    select count(*) as live
    from (select 1 from genflow.jobs where state < 10 limit %(queue_limit)s) as counted
), known as materialized (
    select a.place, newest.id as job_id, coalesce(s.body_hash, k.body_hash) = a.body_hash as same
    from asked as a
    cross join lateral (
        select *
        from genflow.job_keys
        where tenant_id = %(tenant)s and scope = %(scope)s and key = a.job::text
        limit 1
    ) as k
    cross join lateral (select genflow.newest(k.job_id) as id) as newest
    left join genflow.job_specs as s on s.job_id = newest.id
    union all
    select a.place, s.job_id, j.tenant_id = %(tenant)s and s.body_hash = a.body_hash
    from asked as a
    cross join lateral (select id, tenant_id from genflow.jobs where id = a.job limit 1) as j
    join genflow.job_specs as s on s.job_id = genflow.newest(j.id)
    left join lateral (
        select key
        from genflow.job_keys
        where tenant_id = %(tenant)s and scope = %(scope)s and key = a.job::text
        limit 1
    ) as k on true
    where k.key is null
), fresh as materialized (
    select a.*, row_number() over (order by a.place) as nth
    from asked as a
    where not exists (select 1 from known where known.place = a.place)
), admitted as materialized (
    select fresh.*
    from fresh, depth
    where depth.live + fresh.nth <= %(queue_limit)s
), claimed_keys as (
    insert into genflow.job_keys (tenant_id, scope, key, job_id, body_hash)
    select %(tenant)s, %(scope)s, job::text, job, body_hash
    from admitted
    order by job::text
    on conflict do nothing
    returning job_id
), new_jobs as (
    insert into genflow.jobs (id, tenant_id, state, priority, class_id, batch_id, created_at, expires_at)
    select a.job, %(tenant)s, 2, a.priority, a.class_id, %(batch)s, genflow.clock(),
           genflow.clock() + %(retention_s)s * interval '1 s'
    from admitted as a
    join claimed_keys as k on k.job_id = a.job
    order by a.place
    returning id
), new_specs as (
    insert into genflow.job_specs (job_id, workflow, body_hash, params, metadata, policy, rabbit_queue)
    select a.job, a.workflow, a.body_hash, a.params::json, a.metadata::jsonb, a.policy::json, %(rabbit_queue)s
    from admitted as a
    join new_jobs as j on j.id = a.job
), new_refs as (
    insert into genflow.job_assets (asset_id, job_id)
    select r.asset, j.id
    from unnest(%(ref_assets)s::uuid[], %(ref_jobs)s::uuid[]) as r (asset, job)
    join new_jobs as j on j.id = r.job
    on conflict do nothing
)
select a.place::int as place, j.id is not null as new, known.job_id, known.same,
       fresh.nth is not null and admitted.nth is null as "full"
from asked as a
left join known on known.place = a.place
left join fresh on fresh.place = a.place
left join admitted on admitted.place = a.place
left join new_jobs as j on j.id = a.job
order by a.place
