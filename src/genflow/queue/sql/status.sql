-- How things stand, in one look: live jobs by state, the oldest that waits, what ended lately, dead letters of the last
-- hour by class. Locks: none. Index: jobs_live, jobs_ended.
with live as materialized (
    select state, created_at, executing_at, server_id, cancel_at
    from genflow.jobs
    where state < 10
), ended as materialized (
    select state, ended_at, error
    from genflow.jobs
    where state >= 10 and ended_at > genflow.clock() - interval '1 hour'
    order by ended_at desc
    limit 100000
)
select (select count(*) from live where state = 2 and server_id is null) as queued,
       (select count(*) from live where state = 1) as waiting,
       (select count(*) from live where state = 2 and server_id is not null) as bound,
       (select count(*) from live where state = 3) as held,
       (select count(*) from live where cancel_at is not null) as canceling,
       (select extract(epoch from genflow.clock() - min(created_at))::float8
        from live where state in (1, 2) and executing_at is null) as oldest_s,
       (select count(*) from ended where state = 10) as succeeded_hour,
       (select count(*) from ended where state = 11) as failed_hour,
       (select count(*) from ended where ended_at > genflow.clock() - interval '5 minutes') as ended_5min,
       coalesce((
           select json_object_agg(class, n)
           from (select coalesce(error ->> 'class', 'unknown') as class, count(*) as n
                 from ended where state = 11 group by 1) as classes
       ), '{}') as dead_by_class
