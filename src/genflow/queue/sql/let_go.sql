-- Delete those of these jobs whose time is over or whose erasure was asked for, with all that belongs to them (trigger
-- jobs_leave_nothing); keys stand, and so do chores. Sweepers that come at once pass by each other's rows.
-- Locks: the jobs' rows, then what the trigger deletes. Index: jobs_pkey.
with doomed as materialized (
    select id
    from genflow.jobs
    where id = any(%(jobs)s::uuid[]) and state >= 10 and (erase or expires_at <= genflow.clock())
    order by id
    for update skip locked
)
delete from genflow.jobs as j
using doomed
where j.id = doomed.id
returning j.id
