-- Checkpoint: the servers took these prompts. A row for each job that is held tells whether a cancel came in between.
-- Locks: the jobs' rows in the order of ids (fence). Index: jobs_pkey, submits_pkey.
with held as materialized (
    select j.id, j.cancel_at, asked.place, asked.no, asked.number, asked.client_id
    from unnest(%(job)s::uuid[], %(token)s::bigint[], %(no)s::int[], %(number)s::float8[], %(client_id)s::text[])
        with ordinality as asked (job, token, no, number, client_id, place)
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), accepted as (
    update genflow.submits as u
    set state = 2, number = coalesce(held.number, u.number), client_id = coalesce(held.client_id, u.client_id),
        accepted_at = coalesce(u.accepted_at, genflow.clock())
    from held
    where u.job_id = held.id and u.no = held.no and u.state + 0 = 1  -- + 0: by job, not by all open ones
), kept as (
    update genflow.jobs as j
    set step = 2, lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
    from held
    where j.id = held.id
)
select place, cancel_at
from held
