-- A server that was distrusted ran its trial: it takes new work again. Locks: the server's row. Index: servers_pkey.
update genflow.servers
set state = 1, reason = null, quarantined_until = null, needs_run = false
where id = %(server)s and state = 2 and needs_run
returning id
