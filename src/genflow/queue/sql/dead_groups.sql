-- Dead letters that match, counted by what they have in common, with the latest of each. Locks: none. Index: jobs_dead.
-- Whole: job_specs. Where dead letters are many beside all jobs, it is read once instead of a row for each.
select case %(by)s
           when 'class' then d.class when 'code' then d.code when 'reason' then d.reason
           when 'node' then d.node_class when 'server' then d.server
       end as key,
       count(*) as count, max(d.ended_at) as latest_at, (array_agg(d.id order by d.ended_at desc, d.id desc))[1] as example
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
group by 1
order by count desc, key
limit %(limit)s
