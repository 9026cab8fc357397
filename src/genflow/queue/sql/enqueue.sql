-- Accept a job: key, job, spec and references to its inputs, all or nothing; answers it as its client will see it. Its place
-- is left to the next look where it is past a hundred, or where the caller knows the queue to be long.
-- Admits nothing past queue_limit (overshoot: at most the submissions in flight) and nothing under a key in use. It is
-- counted where the caller does not know that the queue is less than half full.
-- Locks: the key's row (a concurrent submit with the same key waits here).
-- Index: jobs_live, job_keys_pkey; for its place jobs_claim.
with depth as (
    select case when %(count)s then (
        select count(*)
        from (select 1 from genflow.jobs where state < 10 limit %(queue_limit)s) as counted
    ) else 0 end as live
), claimed_key as (
    insert into genflow.job_keys as known (tenant_id, scope, key, job_id, body_hash, expires_at)
    select %(tenant)s, 'submit', %(key)s, %(job)s, %(body_hash)s, genflow.clock() + %(key_ttl)s * interval '1 s'
    from depth
    where %(key)s::text is not null and live < %(queue_limit)s
    on conflict (tenant_id, scope, key) do update
        set job_id = excluded.job_id, body_hash = excluded.body_hash, expires_at = excluded.expires_at
        where known.expires_at < genflow.clock()
    returning 1
), admitted as (
    select 1
    from depth
    where live < %(queue_limit)s and (%(key)s::text is null or exists (select 1 from claimed_key))
), new_job as (
    insert into genflow.jobs (id, tenant_id, state, priority, class_id, start_by, created_at, expires_at)
    select %(job)s, %(tenant)s, 2, %(priority)s, %(class)s, genflow.clock() + %(start_by_s)s * interval '1 s',
           genflow.clock(), genflow.clock() + %(retention_s)s * interval '1 s'
    from admitted
    returning id, created_at, expires_at
), new_spec as (
    insert into genflow.job_specs (job_id, workflow, body_hash, params, metadata, policy)
    select id, %(workflow)s, %(body_hash)s, %(params)s, %(metadata)s, %(policy)s
    from new_job
), new_secret as (
    insert into genflow.job_secrets (job_id, sealed)
    select id, %(sealed)s from new_job where %(sealed)s::bytea is not null
), new_refs as (
    insert into genflow.job_assets (asset_id, job_id)
    select asset, new_job.id
    from new_job, unnest(%(assets)s::uuid[]) as asset
    on conflict do nothing
)
select depth.live, new_job.id is not null as accepted, new_job.created_at, new_job.expires_at,
       case when %(place)s and new_job.id is not null then (
           select 1 + count(*)
           from (select 1
                 from genflow.jobs as ahead
                 where ahead.state = 2 and ahead.server_id is null and ahead.class_id = %(class)s
                   and ahead.priority <= %(priority)s
                 limit 100) as counted
       ) end as queue_position
from depth
left join new_job on true
