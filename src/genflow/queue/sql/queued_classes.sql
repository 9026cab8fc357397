-- The classes of jobs that wait for any server, in the order of their numbers, each with the job that is first in it:
-- one step through the index for each class, however many jobs are queued. Locks: none. Index: jobs_claim.
with recursive queued as (
    (select class_id, id as head, 1 as n
     from genflow.jobs
     where state = 2 and server_id is null and class_id > %(after)s
     order by class_id, priority, vtime, seq
     limit 1)
    union all
    select next.class_id, next.head, queued.n + 1
    from queued
    cross join lateral (
        select j.class_id, j.id as head
        from genflow.jobs as j
        where j.state = 2 and j.server_id is null and j.class_id > queued.class_id
        order by j.class_id, j.priority, j.vtime, j.seq
        limit 1
    ) as next
    where queued.n < %(limit)s
)
select class_id, head from queued order by class_id
