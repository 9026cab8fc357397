-- Somebody looks at these jobs: their holders write live progress for a while, and are told so at once.
-- Locks: rows of job_live in the order of their ids. Index: job_live_pkey.
with watched as (
    insert into genflow.job_live as live (job_id, watched_until)
    select id, genflow.clock() + %(watched_s)s * interval '1 s'
    from unnest(%(jobs)s::uuid[]) as wanted (id)
    order by id
    on conflict (job_id) do update set watched_until = excluded.watched_until
    returning job_id
)
select pg_notify('genflow', 'watch:' || string_agg(job_id::text, ',')) from watched having count(*) > 0
