-- A page of dead letters that match, the latest first, below the cursor (`before`, `before_id`).
-- Locks: none. Index: jobs_dead, attempts_pkey, job_specs_pkey.
select d.*
from genflow.dead_letters as d
where d.tenant_id = %(tenant)s
  and (%(since)s::timestamptz is null or d.ended_at >= %(since)s)
  and (%(until)s::timestamptz is null or d.ended_at <= %(until)s)
  and (%(class)s::text is null or d.class = %(class)s)
  and (%(code)s::text is null or d.code = %(code)s)
  and (%(node_class)s::text is null or d.node_class = %(node_class)s)
  and (%(server)s::text is null or d.server = %(server)s)
  and (%(batch)s::uuid is null or d.batch_id = %(batch)s)
  and (%(says)s::text is null or strpos(lower(d.message || chr(10) || d.reason), lower(%(says)s)) > 0)
  and (d.requeued_as is not null) = %(requeued)s
  and (%(before)s::timestamptz is null or (d.ended_at, d.id) < (%(before)s, %(before_id)s::uuid))
order by d.ended_at desc, d.id desc
limit %(limit)s
