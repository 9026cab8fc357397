-- Delete dead letters with all that belongs to their jobs alone. Their keys stand, so that a known id runs nothing; so do
-- chores, and the inputs, which have their own time. Locks: the jobs' rows in id order. Index: jobs_pkey.
with doomed as materialized (
    select id
    from genflow.jobs
    where id = any(%(jobs)s::uuid[]) and tenant_id = %(tenant)s and state = 11
    order by id
    for update
), unwatched as (
    delete from genflow.job_live as l
    using doomed
    where l.job_id = doomed.id
)
delete from genflow.jobs as j
using doomed
where j.id = doomed.id
returning j.id
