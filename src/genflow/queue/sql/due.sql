-- Jobs whose back-off is over become queued again and keep their place. Locks: the promoted rows. Index: jobs_due.
with ripe as materialized (
    select id
    from genflow.jobs
    where state = 1 and run_at <= genflow.clock()
    order by run_at
    limit %(limit)s
    for update skip locked
)
update genflow.jobs as j
set state = 2, run_at = null
from ripe
where j.id = ripe.id
returning j.id
