-- How things stand, in one look: live jobs by state, the oldest that waits, what ended lately, dead letters of the last
-- hour by class. One pass over the live jobs, one over the ends of an hour, a hundred thousand at most.
-- Locks: none. Index: jobs_live, jobs_ended, jobs_dead.
with live as (
    select count(*) filter (where state = 2 and server_id is null) as queued,
           count(*) filter (where state = 1) as waiting,
           count(*) filter (where state = 2 and server_id is not null) as bound,
           count(*) filter (where state = 3) as held,
           count(*) filter (where cancel_at is not null) as canceling,
           min(created_at) filter (where state in (1, 2) and executing_at is null) as oldest_at
    from genflow.jobs
    where state < 10
), ended as (
    select count(*) filter (where state = 10) as succeeded_hour,
           count(*) filter (where state = 11) as failed_hour,
           count(*) filter (where ended_at > genflow.clock() - interval '5 minutes') as ended_5min
    from (
        select state, ended_at
        from genflow.jobs
        where state >= 10 and ended_at > genflow.clock() - interval '1 hour'
        order by ended_at desc
        limit 100000
    ) as lately
), dead as (
    select json_object_agg(class, n) as by_class
    from (
        select coalesce(error ->> 'class', 'unknown') as class, count(*) as n
        from (
            select error
            from genflow.jobs
            where state = 11 and ended_at > genflow.clock() - interval '1 hour'
            limit 100000
        ) as failed
        group by 1
    ) as classes
)
select live.queued, live.waiting, live.bound, live.held, live.canceling,
       extract(epoch from genflow.clock() - live.oldest_at)::float8 as oldest_s,
       ended.*, coalesce(dead.by_class, '{}') as dead_by_class
from live, ended, dead
