-- Make a new job of a dead letter, which stays and is marked with it, all or nothing. A dead letter that is marked already
-- makes another one only with `again`; sent twice, the mark is this very job's. Nothing is made past queue_limit. In a
-- paused batch it is set aside at once.
-- The row is read again once its lock is had, so that of two at the same time the second one sees the first one's mark.
-- Locks: the dead letter's row. Index: jobs_pkey, jobs_live, batches_pkey, job_specs_pkey.
with dead as materialized (
    select id, tenant_id, priority, batch_id, requeued_as
    from genflow.jobs
    where id = %(job)s and tenant_id = %(tenant)s and state = 11 and expires_at > genflow.clock()
    for update
), depth as (
    select count(*) as live
    from (select 1 from genflow.jobs where state < 10 limit %(queue_limit)s) as counted
), admitted as materialized (
    select dead.*
    from dead, depth
    where (dead.requeued_as is null or (%(again)s and dead.requeued_as <> %(new)s)) and depth.live < %(queue_limit)s
), new_job as (
    insert into genflow.jobs (id, tenant_id, state, run_at, priority, class_id, batch_id, created_at, expires_at)
    select %(new)s, d.tenant_id, case b.state when 2 then 1 else 2 end, case b.state when 2 then timestamptz 'infinity' end,
           d.priority, %(class)s, d.batch_id, genflow.clock(), genflow.clock() + %(retention_s)s * interval '1 s'
    from admitted as d
    left join genflow.batches as b on b.id = d.batch_id
    returning id
), new_spec as (
    insert into genflow.job_specs (job_id, workflow, body_hash, params, set_values, metadata, policy, key_id,
                                   requeued_from, root_id, rabbit_queue)
    select new_job.id, %(workflow)s, coalesce(%(body_hash)s, s.body_hash), %(params)s, %(set_values)s, s.metadata,
           s.policy, s.key_id, s.job_id, coalesce(s.root_id, s.job_id), s.rabbit_queue
    from new_job, admitted
    join genflow.job_specs as s on s.job_id = admitted.id
), new_refs as (
    insert into genflow.job_assets (asset_id, job_id)
    select asset, new_job.id
    from new_job, unnest(%(assets)s::uuid[]) as asset
    on conflict do nothing
), marked as (
    update genflow.jobs as j
    set requeued_as = %(new)s
    from admitted
    where j.id = admitted.id
    returning j.id
)
select dead.requeued_as, depth.live, (select count(*) from marked) > 0 as made
from dead, depth
