-- Take one dead letter that this RabbitMQ queue is to be told of, with what its message says. A job that is gone by now
-- has nothing left to tell. Locks: the chore's row. Index: chores_due, job_specs_pkey, chores_pkey, jobs_pkey.
with next as materialized (
    select c.id
    from genflow.chores as c
    where c.kind = 'rabbit_dead' and c.server_id is null and c.due_at <= genflow.clock()
      and c.payload ->> 'queue' = %(queue)s and (c.lease_until is null or c.lease_until < genflow.clock())
    order by c.due_at
    limit 1
    for update of c skip locked
), taken as (
    update genflow.chores as c
    set token = c.token + 1, tries = c.tries + 1, lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
    from next
    where c.id = next.id
    returning c.id, c.job_id, c.token
)
select taken.id, taken.job_id, taken.token, j.error, j.priority, s.workflow, s.metadata
from taken
left join genflow.jobs as j on j.id = taken.job_id
left join genflow.job_specs as s on s.job_id = taken.job_id
