-- How many of the servers that a worker saw healthy lately were not asked what they have since `since`, or, without it,
-- within the last `fresh_s` seconds; and what time it is. Locks: none. Small tables.
select genflow.clock() as now, count(*) as unlearned
from genflow.servers as v
where v.state <> 4
  and coalesce(v.learned_at, '-infinity')
      < coalesce(%(since)s::timestamptz, genflow.clock() - %(fresh_s)s * interval '1 s')
  and exists (
      select 1
      from genflow.worker_servers as ws
      join genflow.workers as w on w.id = ws.worker_id
      where ws.server_id = v.id and ws.healthy and w.seen_at > genflow.clock() - %(lately_s)s * interval '1 s'
        and ws.seen_at > genflow.clock() - %(lately_s)s * interval '1 s')
