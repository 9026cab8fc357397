-- Take jobs from holders whose lease ran out or whose hard deadline passed; past max_takeovers they are dead letters.
-- Not for one lease after Postgres itself started: an outage of the database is no death of all workers.
-- Locks: the rescued rows, skipping those at work. Index: jobs_held, submits_one_open, job_specs_pkey, jobs_pkey.
with expired as materialized (
    select j.id, j.cancel_at, j.step, (s.policy ->> 'max_takeovers')::int as max_takeovers,
           j.deadline_at < genflow.clock() as hung,
           exists (select 1 from genflow.submits as u where u.job_id = j.id and u.state < 10) as open
    from genflow.jobs as j
    join genflow.job_specs as s on s.job_id = j.id
    where j.state = 3 and (j.lease_until < genflow.clock() or j.deadline_at < genflow.clock())
      and pg_postmaster_start_time() + %(lease_s)s * interval '1 s' < genflow.clock()
    order by j.id
    limit %(limit)s
    for update of j skip locked
), freed as (
    update genflow.jobs as j
    set state = case when e.cancel_at is not null and not e.open then 12
                     when e.cancel_at is null and j.takeovers >= e.max_takeovers then 11
                     else 2 end,
        ended_at = case when (e.cancel_at is not null and not e.open)
                          or (e.cancel_at is null and j.takeovers >= e.max_takeovers) then genflow.clock() end,
        expires_at = case when (e.cancel_at is not null and not e.open)
                            or (e.cancel_at is null and j.takeovers >= e.max_takeovers)
                          then genflow.clock() + (j.expires_at - j.created_at) else j.expires_at end,
        error = case when e.cancel_at is null and j.takeovers >= e.max_takeovers then %(error)s::json end,
        takeovers = j.takeovers + case when e.cancel_at is null then 1 else 0 end,
        server_id = case when (e.open or e.step = 3)
                          and not (e.cancel_at is null and j.takeovers >= e.max_takeovers) then j.server_id end,
        token = j.token + 1, worker_id = null, deadline_at = null
    from expired as e
    where j.id = e.id
    returning j.id, j.state, j.takeovers, e.hung
), abandoned as (
    update genflow.submits as u
    set state = 14, ended_at = genflow.clock()
    from freed
    where u.job_id = freed.id and u.state < 10 and freed.state = 11
    returning u.job_id, u.no, u.uuid, u.server_id
), chore as (
    insert into genflow.chores (kind, server_id, job_id, submit_no, submit, due_at)
    select 'stop', server_id, job_id, no, uuid, genflow.clock()
    from abandoned
    on conflict do nothing
)
select id, state, takeovers, hung
from freed
