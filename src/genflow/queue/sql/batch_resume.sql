-- A paused batch goes on: what was set aside is queued again at its old place, `limit` a time.
-- Locks: the batch's row, then its jobs' rows. Index: batches_pkey, jobs_batch, jobs_pkey.
with batch as (
    update genflow.batches set state = 1 where id = %(batch)s and tenant_id = %(tenant)s returning id
), back as materialized (
    select j.id
    from batch
    join genflow.jobs as j on j.batch_id = batch.id
    where j.state + 0 = 1 and j.run_at = 'infinity'  -- + 0: by batch, not by all that is set aside
    order by j.seq
    limit %(limit)s
    for update of j
)
update genflow.jobs as j
set state = 2, run_at = null
from back
where j.id = back.id
returning j.id
