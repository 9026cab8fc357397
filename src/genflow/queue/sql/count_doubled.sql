-- A submit that was given up did run: mark it, and count a doubled run on the job where another ran in its place, in the
-- same attempt or in one that it led to. A failed run before it is no such: its retry was meant.
-- Locks: the job's row, then the submit's. Index: jobs_pkey, submits_uuid_key, submits_pkey.
with job as materialized (
    select id
    from genflow.jobs
    where id = %(job)s
    for update
), ran as (
    update genflow.submits as u
    set executed = true
    from job
    where u.uuid = %(submit)s and u.job_id = job.id and not u.executed
    returning u.job_id, u.attempt, u.no
)
update genflow.jobs as j
set doubled = j.doubled + 1
from ran
where j.id = ran.job_id and exists (
    select 1 from genflow.submits as other
    where other.job_id = ran.job_id and other.executed
      and (other.no > ran.no or (other.no < ran.no and other.attempt = ran.attempt)))
returning j.doubled
