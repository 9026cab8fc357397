-- What is left to do of an erasure: the job itself, its copies on servers. Locks: none. Index: jobs_pkey, chores_job.
select exists (select 1 from genflow.jobs where id = %(job)s) as job,
       coalesce((
           select json_agg(json_build_object('server', each.name, 'copies', each.copies) order by each.name)
           from (
               select v.name, count(*) as copies
               from genflow.chores as c
               join genflow.servers as v on v.id = c.server_id
               where c.job_id = %(job)s and c.kind in ('scrub', 'stop')
               group by v.name) as each
       ), '[]') as servers
