-- Jobs whose start-by passed before any run, and that have no open submit. Locks: the expired rows. Index: jobs_start_by.
with late as materialized (
    select j.id
    from genflow.jobs as j
    where j.state in (1, 2) and j.start_by is not null and j.start_by <= genflow.clock() and j.executing_at is null
      and not exists (select 1 from genflow.submits as u where u.job_id = j.id and u.state < 10)
    order by j.id
    limit %(limit)s
    for update skip locked
)
update genflow.jobs as j
set state = 13, ended_at = genflow.clock(), token = j.token + 1, worker_id = null, server_id = null
from late
where j.id = late.id
returning j.id
