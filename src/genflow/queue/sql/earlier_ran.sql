-- An earlier submit of this job did run: keep what its entry said before the entry is deleted at the server.
-- Locks: the job's row (fence), then the submit's. Index: jobs_pkey, submits_uuid_key.
with held as materialized (
    select id
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), ran as (
    update genflow.submits as u
    set executed = true, entry = %(entry)s, exec_start_ms = %(exec_start_ms)s, exec_end_ms = %(exec_end_ms)s
    from held
    where u.job_id = held.id and u.uuid = %(submit)s and u.state >= 10
)
select id
from held
