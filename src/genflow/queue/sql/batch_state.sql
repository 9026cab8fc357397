-- Whether there is such a batch, and whether it is paused. Locks: none. Index: batches_pkey.
select state
from genflow.batches
where id = %(batch)s and tenant_id = %(tenant)s and expires_at > genflow.clock()
