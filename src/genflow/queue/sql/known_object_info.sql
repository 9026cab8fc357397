-- What the fleet's servers can do, as last seen, whether they are up or not. Locks: none. Index: object_info_pkey.
select o.hash, o.body
from genflow.object_info as o
where o.hash in (select capabilities_hash from genflow.servers)
