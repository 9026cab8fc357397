-- A server that was drained or quarantined takes new submits again. Locks: the server's row. Index: servers_name_key.
update genflow.servers
set state = 1, reason = null, quarantined_until = null, needs_run = false
where name = %(name)s and state <> 4
returning id
