-- Jobs whose start-by passed before any run, and that have no open submit (a bound job may have one; read off the job's
-- own row, which is read again once its lock is had). Kept from now for as long as others from their end.
-- Locks: the expired rows. Index: jobs_start_by, jobs_pkey.
with late as materialized (
    select id
    from genflow.jobs
    where state in (1, 2) and start_by is not null and start_by <= genflow.clock() and executing_at is null
      and server_id is null
    order by id
    limit %(limit)s
    for update skip locked
)
update genflow.jobs as j
set state = 13, ended_at = genflow.clock(), expires_at = genflow.clock() + (j.expires_at - j.created_at),
    token = j.token + 1, worker_id = null
from late
where j.id = late.id
returning j.id
