-- Take one chore of servers this worker reaches. Locks: the chore's row. Index: chores_due.
with next as materialized (
    select id
    from genflow.chores
    where server_id = any(%(servers)s) and due_at <= genflow.clock()
      and (lease_until is null or lease_until < genflow.clock())
    order by due_at
    limit 1
    for update skip locked
)
update genflow.chores as c
set token = c.token + 1, tries = c.tries + 1, lease_until = genflow.clock() + %(lease_s)s * interval '1 s'
from next
where c.id = next.id
returning c.id, c.kind, c.server_id, c.job_id, c.submit_no, c.submit, c.payload, c.tries, c.token
