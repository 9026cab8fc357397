-- A server that a person had forgotten, or by rule (server_lost_after) one that nobody saw for so long, is taken as lost:
-- its open submits are abandoned, their jobs go to any server, counted as resubmits, and a chore stops the old prompt
-- should the server come back. Results that waited there to be collected are made anew where it was forgotten.
-- Locks: the freed rows, skipping those at work. Index: jobs_bound, submits_one_open, attempts_pkey, jobs_pkey.
with stranded as materialized (
    select j.id
    from genflow.jobs as j
    join genflow.servers as v on v.id = j.server_id
    where j.state in (1, 2) and j.server_id is not null and j.cancel_at is null
      and (v.state = 4 or (j.step < 3 and v.last_seen_at < genflow.clock() - %(unseen_s)s::float8 * interval '1 s'))
    order by j.id
    limit %(limit)s
    for update of j skip locked
), abandoned as (
    update genflow.submits as u
    set state = 14, ended_at = genflow.clock()
    from stranded
    where u.job_id = stranded.id and u.state < 10
    returning u.job_id, u.no, u.uuid, u.server_id, u.attempt
), judged as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), outcome = 'given_back', reason = 'its server is lost'
    from abandoned
    where a.job_id = abandoned.job_id and a.no = abandoned.attempt
), chore as (
    insert into genflow.chores (kind, server_id, job_id, submit_no, submit, due_at)
    select 'stop', server_id, job_id, no, uuid, genflow.clock()
    from abandoned
    on conflict do nothing
)
update genflow.jobs as j
set state = 2, run_at = null, server_id = null, step = least(j.step, 1::smallint), resubmits = j.resubmits + 1,
    token = j.token + 1, worker_id = null
from stranded
where j.id = stranded.id
returning j.id
