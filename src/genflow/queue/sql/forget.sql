-- A server is taken as gone for good; give_up_lost.sql then frees its jobs. With `seen`, also one that a worker saw healthy
-- within `lately_s` seconds. Locks: the server's row. Index: servers_name_key.
update genflow.servers as v
set state = 4, reason = 'forgotten', quarantined_until = null, needs_run = false
where v.name = %(name)s
  and (%(seen)s or not exists (
      select 1 from genflow.worker_servers as ws
      where ws.server_id = v.id and ws.healthy and ws.seen_at > genflow.clock() - %(lately_s)s * interval '1 s'))
returning v.id
