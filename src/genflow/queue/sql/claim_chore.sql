-- Take one stop chore of servers this worker reaches; never one whose job has an open submit there, or may get one now:
-- calls by job id could hit the wrong prompt. Locks: the chore's row. Index: chores_due, submits_one_open, chores_pkey,
-- jobs_pkey, submits_slot.
with next as materialized (
    select c.id
    from genflow.chores as c
    where c.kind = 'stop' and c.server_id = any(%(servers)s) and c.due_at <= genflow.clock()
      and (c.lease_until is null or c.lease_until < genflow.clock())
      and not exists (
          select 1 from genflow.submits as u
          where u.job_id = c.job_id and u.server_id = c.server_id and u.state < 10)
      and not exists (
          select 1 from genflow.jobs as j
          where j.id = c.job_id and j.state + 0 = 3 and j.server_id is null)  -- + 0: by id, not by jobs_held
    order by c.due_at
    limit 1
    for update of c skip locked
)
update genflow.chores as c
set token = c.token + 1, tries = c.tries + 1, lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
from next
where c.id = next.id
returning c.id, c.kind, c.server_id, c.job_id, c.submit_no, c.submit, c.payload, c.tries, c.token
