-- The fleet as the database knows it. Locks: none. Small table.
select v.id, v.name, v.state, v.reason, v.boot, v.slots, v.last_seen_at,
       (select count(*) from genflow.submits as u where u.server_id = v.id and u.state < 10) as open_submits
from genflow.servers as v
order by v.name
