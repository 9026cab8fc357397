-- Live progress that nobody watches any more. Locks: the rows, skipping those at work. Whole: job_live. It has a row
-- a job that is watched. Index: job_live_pkey.
with old as materialized (
    select job_id
    from genflow.job_live
    where watched_until < genflow.clock() - interval '1 h'
    limit %(limit)s
    for update skip locked
)
delete from genflow.job_live as l
using old
where l.job_id = old.job_id
returning l.job_id
