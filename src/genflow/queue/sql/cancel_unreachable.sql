-- A cancel whose server has not been seen for a minute: give the submit up, leave a chore that stops it on its return.
-- Also where the holder's lease ran out as long ago and no worker is left that would take over.
-- Locks: the canceled rows, skipping those at work. Index: jobs_canceling, jobs_held, submits_one_open,
-- jobs_pkey.
with stranded as materialized (
    select j.id
    from genflow.jobs as j
    join genflow.servers as v on v.id = j.server_id
    where (j.state in (1, 2) or j.state = 3 and j.lease_until < genflow.clock() - %(unseen_s)s * interval '1 s')
      and j.cancel_at < genflow.clock() - %(unseen_s)s * interval '1 s'
      and (v.last_seen_at is null or v.last_seen_at < genflow.clock() - %(unseen_s)s * interval '1 s')
    order by j.id
    limit %(limit)s
    for update of j skip locked
), abandoned as (
    update genflow.submits as u
    set state = 14, stop_reason = 'cancel', ended_at = genflow.clock()
    from stranded
    where u.job_id = stranded.id and u.state < 10
    returning u.job_id, u.no, u.uuid, u.server_id
), chore as (
    insert into genflow.chores (kind, server_id, job_id, submit_no, submit, due_at)
    select 'stop', server_id, job_id, no, uuid, genflow.clock()
    from abandoned
    on conflict do nothing
)
update genflow.jobs as j
set state = 12, ended_at = genflow.clock(), expires_at = genflow.clock() + (j.expires_at - j.created_at), token = j.token + 1, worker_id = null, server_id = null
from stranded
where j.id = stranded.id
returning j.id
