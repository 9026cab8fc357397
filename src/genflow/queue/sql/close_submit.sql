-- End a submit that never ran, or that its server forgot, and keep the job: its holder goes on with a new submit.
-- Locks: the job's row (fence). Index: jobs_pkey, attempts_pkey, submits_one_open.
with held as materialized (
    select id
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), closed as (
    update genflow.submits as u
    set state = %(state)s, doubtful = %(doubtful)s, ended_at = genflow.clock()
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state < 10
    returning u.attempt
), given_back as (
    update genflow.attempts as a
    set ended_at = genflow.clock(), outcome = 'given_back', reason = %(reason)s
    from held, closed
    where a.job_id = held.id and a.no = closed.attempt
)
update genflow.jobs as j
set server_id = null, step = least(j.step, 1::smallint), deadline_at = null,
    resubmits = j.resubmits + (select count(*) from closed where %(resubmit)s),
    lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id, j.resubmits
