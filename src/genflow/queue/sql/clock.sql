-- What time it is. Locks: none.
select genflow.clock() as now
