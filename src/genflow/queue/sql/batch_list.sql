-- Batches, newest first, without their counts. Locks: none. Index: batches_list.
select id, name, state, created_at
from genflow.batches
where tenant_id = %(tenant)s and expires_at > genflow.clock()
  and (%(before)s::timestamptz is null or created_at < %(before)s)
order by created_at desc, id
limit %(limit)s
