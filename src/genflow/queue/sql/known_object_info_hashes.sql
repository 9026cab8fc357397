-- Which of those descriptions are in use, to know whether a cached copy is current. Locks: none. Small table.
select distinct capabilities_hash as hash
from genflow.servers
where capabilities_hash is not null
order by 1
