-- Cancel a job. Without an open submit it is canceled here and now, and the token moves, so that a later intent finds
-- nothing; with one, only the wish is recorded, because its holder must stop the GPU. A finished job stays as it is.
-- Whether a submit is open is read off the job's own row (bound, its run not ended): the row is read again once its
-- lock is had, while submits would show as they were before this waited for an intent, or for the end of a submit.
-- Locks: the job's row. Index: jobs_pkey.
with target as materialized (
    select id, state, cancel_at, server_id is not null and step < 3 as open
    from genflow.jobs
    where id = %(job)s and tenant_id = %(tenant)s and (state < 10 or expires_at > genflow.clock())
    for update
), changed as (
    update genflow.jobs as j
    set state = case when target.open then j.state else 12 end,
        token = j.token + case when target.open then 0 else 1 end,
        worker_id = case when target.open then j.worker_id end,
        server_id = case when target.open then j.server_id end,
        ended_at = case when target.open then null else genflow.clock() end,
        expires_at = case when target.open then j.expires_at else genflow.clock() + %(retention_s)s * interval '1 s' end,
        cancel_at = coalesce(j.cancel_at, genflow.clock())
    from target
    where j.id = target.id and target.state < 10 and (target.cancel_at is null or not target.open)
    returning j.id
)
select target.id, target.state, target.open, (select count(*) from changed) as changed
from target
