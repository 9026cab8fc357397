-- Which descriptions are in use, so what the fleet's servers can do, as last seen, whether they are up or not.
-- Locks: none. Small table.
select distinct capabilities_hash as hash
from genflow.servers
where capabilities_hash is not null and state <> 4
order by 1
