-- Delete an asset's record unless a job that is not over needs it; its bytes go with the last record of them.
-- A submit that refers to it holds its row until it is committed. This statement's own view is from before that wait, so
-- a function looks at the jobs once the lock is had.
-- Locks: the asset's row. Index: assets_pkey, job_assets_pkey, jobs_live.
with wanted as materialized (
    select id from genflow.assets
    where id = %(asset)s and tenant_id = %(tenant)s and (expires_at is null or expires_at > genflow.clock())
    for update
), judged as materialized (
    select id, genflow.needed(id) as needed from wanted
), gone as (
    delete from genflow.assets as a
    using judged
    where a.id = judged.id and not judged.needed
)
select needed from judged
