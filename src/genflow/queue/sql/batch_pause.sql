-- A paused batch is claimed from no more: its queued jobs are set aside, `limit` a time. What a server has goes on.
-- Locks: the batch's row, then its jobs' rows, skipping those being claimed. Index: batches_pkey, jobs_batch,
-- jobs_pkey.
with batch as (
    update genflow.batches set state = 2 where id = %(batch)s and tenant_id = %(tenant)s returning id
), aside as materialized (
    select j.id
    from batch
    join genflow.jobs as j on j.batch_id = batch.id
    where j.state + 0 = 2 and j.server_id is null  -- + 0: by batch, not by all that is live
    order by j.seq
    limit %(limit)s
    for update of j skip locked
)
update genflow.jobs as j
set state = 1, run_at = 'infinity'
from aside
where j.id = aside.id
returning j.id
