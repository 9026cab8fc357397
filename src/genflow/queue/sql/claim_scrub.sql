-- Take one scrub of a server this worker reaches, with what its submit left there as far as it was written down
-- (in the chore itself once its job is gone). Never one
-- whose job has an open submit there, or one that is still to be stopped: a call by job id could hit the wrong prompt.
-- Locks: the chore's row. Index: chores_due, submits_one_open, submits_pkey, chores_job, chores_pkey, submits_slot.
with next as materialized (
    select c.id
    from genflow.chores as c
    where c.kind = 'scrub' and c.server_id = %(server)s and c.due_at <= genflow.clock()
      and (c.lease_until is null or c.lease_until < genflow.clock())
      and not exists (
          select 1 from genflow.submits as u
          where u.job_id = c.job_id and u.server_id = c.server_id and u.state < 10)
      and not exists (
          select 1 from genflow.chores as stop
          where stop.kind = 'stop' and stop.job_id = c.job_id and stop.server_id = c.server_id)
    order by c.due_at
    limit 1
    for update of c skip locked
), taken as (
    update genflow.chores as c
    set token = c.token + 1, tries = c.tries + 1, lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
    from next
    where c.id = next.id
    returning c.*
)
select taken.id, taken.kind, taken.server_id, taken.job_id, taken.submit_no, taken.submit, taken.tries, taken.token,
       coalesce(taken.payload, json_build_object('outputs', u.entry -> 'outputs')) as payload
from taken
left join genflow.submits as u on u.job_id = taken.job_id and u.no = taken.submit_no
