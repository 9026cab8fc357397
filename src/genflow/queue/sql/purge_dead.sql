-- Delete dead letters, with what belongs to their jobs (trigger jobs_leave_nothing). Their keys stand, so that a known id
-- runs nothing; so do chores. Locks: the jobs' rows in id order, then what the trigger deletes. Index: jobs_pkey.
with doomed as materialized (
    select id
    from genflow.jobs
    where id = any(%(jobs)s::uuid[]) and tenant_id = %(tenant)s and state = 11
    order by id
    for update
)
delete from genflow.jobs as j
using doomed
where j.id = doomed.id
returning j.id
