-- Delete an asset's record unless a job that is not over needs it; its bytes go with the last record of them.
-- Locks: the asset's row, before its jobs are looked at, so that no submit refers to it meanwhile. Index: assets_pkey, job_assets_pkey.
with wanted as materialized (
    select id from genflow.assets
    where id = %(asset)s and tenant_id = %(tenant)s and (expires_at is null or expires_at > genflow.clock())
    for update
), needed as (
    select 1
    from wanted
    join genflow.job_assets as r on r.asset_id = wanted.id
    join genflow.jobs as j on j.id = r.job_id
    where j.state < 10
    limit 1
), gone as (
    delete from genflow.assets as a
    using wanted
    where a.id = wanted.id and not exists (select 1 from needed)
)
select exists (select 1 from needed) as needed from wanted
