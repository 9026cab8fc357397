-- The dead letters whose ids lie in a range, which is what the first digits of an id say; at most two, for more than one
-- is no name. Locks: none. Index: jobs_dead, jobs_pkey, job_specs_pkey.
select d.id
from genflow.dead_letters as d
where d.id between %(first)s and %(last)s and d.tenant_id = %(tenant)s
order by d.id
limit 2
