-- The fleet as the database knows it: each server with its open submits, the jobs that wait for it alone, and the workers
-- that saw it within `lately_s` seconds. Locks: none. Index: submits_slot, jobs_bound, chores_due, jobs_pkey.
select v.id, v.name, v.state, v.reason, v.quarantined_until, v.needs_run, v.boot, v.guard, v.slots, v.vram, v.tags, v.last_seen_at,
       (select count(*) from genflow.submits as u where u.server_id = v.id and u.state < 10) as open_submits,
       (select count(*)
        from (select 1 from genflow.jobs as j
              where j.server_id = v.id and j.state in (1, 2) limit 1000) as counted) as waiting_jobs,
       (select count(*)
        from (select 1 from genflow.chores as c
              where c.kind = 'scrub' and c.server_id = v.id
                and (select j.id from genflow.jobs as j where j.id = c.job_id) is null  -- one by one: joined, it reads all jobs
              limit 1000) as counted) as erasures_left,
       coalesce((
           select json_agg(json_build_object('worker', w.name, 'healthy', ws.healthy, 'url', ws.url) order by w.name, w.id)
           from genflow.worker_servers as ws
           join genflow.workers as w on w.id = ws.worker_id
           where ws.server_id = v.id and ws.seen_at > genflow.clock() - %(lately_s)s * interval '1 s'
       ), '[]') as seen_by
from genflow.servers as v
where v.state <> 4 or %(forgotten)s
order by v.name
