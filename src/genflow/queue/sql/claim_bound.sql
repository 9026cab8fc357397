-- Claim jobs that belong to servers this worker reaches: an open submit to follow, or a finished run to collect.
-- They bring their own slot. Locks: the claimed rows, skipping those of others. Index: jobs_bound, jobs_pkey.
with picked as materialized (
    select id, lease_until
    from genflow.jobs
    where state = 2 and server_id = any(%(servers)s)
    order by server_id, seq
    limit %(limit)s
    for update skip locked
)
update genflow.jobs as j
set state = 3, worker_id = %(worker)s, token = j.token + 1,
    lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
from picked
where j.id = picked.id
returning j.id, j.token, j.server_id, j.class_id,
          extract(epoch from genflow.clock() - picked.lease_until)::float8 as since_last_holder_s
