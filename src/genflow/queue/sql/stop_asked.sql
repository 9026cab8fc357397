-- Who stops a run says so before the first call that stops it. The first reason stays; a take-back gives way to any.
-- Locks: the job's row (fence). Index: jobs_pkey, submits_one_open.
with held as materialized (
    select id
    from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), marked as (
    update genflow.submits as u
    set stop_reason = case when coalesce(u.stop_reason, 'neighbour') = 'neighbour' then %(reason)s else u.stop_reason end
    from held
    where u.job_id = held.id and u.no = %(no)s and u.state < 10
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id
