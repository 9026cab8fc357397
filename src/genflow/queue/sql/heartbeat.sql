-- Renew every lease of one worker and learn which jobs are to be canceled. A job missing from the answer is lost.
-- Locks: its job rows in id order, waiting, never skipping. Index: jobs_pkey. Plus the worker's own row.
with mine as materialized (
    select j.id
    from genflow.jobs as j
    join unnest(%(jobs)s::uuid[], %(tokens)s::bigint[]) as held (id, token) on held.id = j.id and held.token = j.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), alive as (
    update genflow.workers set seen_at = genflow.clock(), draining = %(draining)s where id = %(worker)s
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from mine
where j.id = mine.id
returning j.id, j.token, j.cancel_at
