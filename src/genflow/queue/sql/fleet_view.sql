-- Every server that is not forgotten: what it has, and whether jobs may go there, which is so where it is ready and a
-- worker that takes new jobs saw it healthy lately. Locks: none. Small tables.
select v.id, v.vram, v.capabilities_hash,
       v.state = 1 and exists (
           select 1
           from genflow.worker_servers as ws
           join genflow.workers as w on w.id = ws.worker_id
           where ws.server_id = v.id and ws.healthy and not w.draining
             and ws.seen_at > genflow.clock() - %(lately_s)s * interval '1 s') as ready
from genflow.servers as v
where v.state <> 4
order by v.id
