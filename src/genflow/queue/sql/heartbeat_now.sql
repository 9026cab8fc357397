-- heartbeat.sql for one job after that statement failed for all of them. It fails at once where the row is locked, so that
-- many jobs of which a few are locked have their turn before their leases run out. Skipped rows would look lost.
-- Locks: the job's row (fence), not waiting; the worker's own row. Index: jobs_pkey.
with mine as materialized (
    select j.id
    from genflow.jobs as j
    join unnest(%(jobs)s::uuid[], %(tokens)s::bigint[]) as held (id, token) on held.id = j.id and held.token = j.token
    where j.worker_id = %(worker)s
    for update of j nowait
), alive as (
    update genflow.workers set seen_at = genflow.clock(), draining = %(draining)s where id = %(worker)s
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from mine
where j.id = mine.id
returning j.id, j.token, j.cancel_at
