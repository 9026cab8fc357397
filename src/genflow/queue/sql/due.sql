-- Jobs whose back-off is over become queued again and keep their place; those of a paused batch are set aside until it
-- goes on. Locks: the promoted rows. Index: jobs_due, batches_pkey, jobs_pkey.
with ripe as materialized (
    select id, exists (select 1 from genflow.batches as b where b.id = jobs.batch_id and b.state = 2) as paused
    from genflow.jobs
    where state = 1 and run_at <= genflow.clock()
    order by run_at
    limit %(limit)s
    for update skip locked
)
update genflow.jobs as j
set state = case when ripe.paused then 1 else 2 end,
    run_at = case when ripe.paused then 'infinity'::timestamptz end
from ripe
where j.id = ripe.id
returning j.id
