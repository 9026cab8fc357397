-- Keep new work from a server for a while, with the reason. Locks: the server's row. Index: servers_pkey.
update genflow.servers
set state = 2, reason = %(reason)s, quarantined_until = genflow.clock() + %(seconds)s * interval '1 s'
where id = %(server)s and state in (1, 2)
returning id
