-- The workers that are on the list, with the jobs that each holds. Locks: none. Index: jobs_held; small tables else.
select w.id, w.name, w.host, w.version, w.draining, w.started_at, w.seen_at,
       w.seen_at > genflow.clock() - %(lately_s)s * interval '1 s' as alive,
       coalesce(held.jobs, 0) as jobs,
       coalesce((
           select json_agg(v.name order by v.name)
           from genflow.worker_servers as ws
           join genflow.servers as v on v.id = ws.server_id
           where ws.worker_id = w.id
       ), '[]') as servers
from genflow.workers as w
left join (
    select worker_id, count(*) as jobs from genflow.jobs where state = 3 group by worker_id
) as held on held.worker_id = w.id
order by w.name, w.id
