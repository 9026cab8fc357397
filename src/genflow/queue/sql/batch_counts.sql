-- One batch with its rows counted by what became of them: a row's job is the newest that was made of it. `ended` counts
-- the results and dead letters of the last `window_s` seconds, which last `window` seconds of the batch's life.
-- `genflow run` looks every two seconds: only a row is led on to its newest job whose own was requeued, was made by a
-- requeue, or is gone; the rest is one pass.
-- Locks: none. Index: batches_pkey, jobs_pkey, job_specs_root, batch_rows_pkey, job_specs_pkey.
with made as materialized (
    select job_id from genflow.job_specs where root_id is not null
), line as materialized (
    select r.job_id, own.state, own.executing_at, own.ended_at,
           own.id is null or own.requeued_as is not null or own.id in (select job_id from made) as leads_on
    from genflow.batch_rows as r
    left join genflow.jobs as own on own.id = r.job_id
    where r.batch_id = %(batch)s
), counted as (
    select count(*) as rows,
           count(*) filter (where j.state in (1, 2) and j.executing_at is null) as queued,
           count(*) filter (where j.state = 3 or (j.state in (1, 2) and j.executing_at is not null)) as running,
           count(*) filter (where j.state = 10) as succeeded,
           count(*) filter (where j.state = 11) as failed,
           count(*) filter (where j.state = 12) as canceled,
           count(*) filter (where j.state = 13) as expired,
           count(*) filter (where j.state is null) as gone,
           count(*) filter (where j.ended_at > genflow.clock() - %(window_s)s * interval '1 s') as ended
    from (
        select state, executing_at, ended_at from line where not leads_on
        union all
        select newest.state, newest.executing_at, newest.ended_at
        from line
        left join genflow.jobs as newest on newest.id = genflow.newest(line.job_id)
        where leads_on
    ) as j
)
select b.id, b.name, b.state, b.created_at, counted.*,
       extract(epoch from least(genflow.clock() - b.created_at, %(window_s)s * interval '1 s'))::float8 as "window"
from genflow.batches as b, counted
where b.id = %(batch)s and b.tenant_id = %(tenant)s and b.expires_at > genflow.clock()
