-- One batch with its rows counted by what became of them: a row's job is the newest that was made of it. `ended` counts
-- the results and dead letters of the last `window_s` seconds, which last `window` seconds of the batch's life.
-- Locks: none. Index: batches_pkey, batch_rows_pkey, job_specs_root, jobs_pkey.
select b.id, b.name, b.state, b.created_at, counted.*,
       extract(epoch from least(genflow.clock() - b.created_at, %(window_s)s * interval '1 s'))::float8 as "window"
from genflow.batches as b,
     lateral (
         select count(*) as rows,
                count(*) filter (where j.state in (1, 2) and j.executing_at is null) as queued,
                count(*) filter (where j.state = 3 or (j.state in (1, 2) and j.executing_at is not null)) as running,
                count(*) filter (where j.state = 10) as succeeded,
                count(*) filter (where j.state = 11) as failed,
                count(*) filter (where j.state = 12) as canceled,
                count(*) filter (where j.state = 13) as expired,
                count(*) filter (where j.id is null) as gone,
                count(*) filter (where j.ended_at > genflow.clock() - %(window_s)s * interval '1 s') as ended
         from genflow.batch_rows as r
         cross join lateral (select genflow.newest(r.job_id) as id) as newest
         left join genflow.jobs as j on j.id = newest.id
         where r.batch_id = b.id
     ) as counted
where b.id = %(batch)s and b.tenant_id = %(tenant)s and b.expires_at > genflow.clock()
