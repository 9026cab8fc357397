-- Another live worker that knows this server under another address, or this address under another name.
-- Locks: none. Small tables.
select s.name, ws.url, w.name as worker
from genflow.worker_servers as ws
join genflow.servers as s on s.id = ws.server_id
join genflow.workers as w on w.id = ws.worker_id
where w.id <> %(worker)s and w.seen_at > genflow.clock() - %(alive_s)s * interval '1 s'
  and ((s.id = %(server)s and ws.url <> %(url)s) or (s.id <> %(server)s and ws.url = %(url)s and %(absolute)s))
limit 1
