-- A run that ended, and whose server has been away through the whole collect window: nobody could even ask for its files.
-- Locks: the given up rows, skipping those at work. Index: jobs_bound, submits_pkey, attempts_pkey, jobs_pkey.
with late as materialized (
    select j.id, j.attempt
    from genflow.jobs as j
    join genflow.submits as u on u.job_id = j.id and u.no = j.submit_no
    join genflow.servers as v on v.id = j.server_id
    where j.state = 2 and j.server_id is not null and j.step = 3
      and u.ended_at < genflow.clock() - %(window_s)s * interval '1 s'
      and (v.last_seen_at is null or v.last_seen_at < genflow.clock() - %(unseen_s)s * interval '1 s')
    order by j.id
    limit %(limit)s
    for update of j skip locked
), judged as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), outcome = 'failed', class = %(class)s, code = %(code)s, reason = %(reason)s
    from late
    where a.job_id = late.id and a.no = late.attempt
)
update genflow.jobs as j
set state = 11, error = %(error)s::json, ended_at = genflow.clock(),
    expires_at = genflow.clock() + (j.expires_at - j.created_at), token = j.token + 1, worker_id = null, server_id = null
from late
where j.id = late.id
returning j.id
