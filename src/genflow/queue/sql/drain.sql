-- A server gets no new submit from now on; what it has goes on. Locks: the server's row. Index: servers_name_key.
update genflow.servers
set state = 3, reason = %(reason)s, quarantined_until = null, needs_run = false
where name = %(name)s and state <> 4
returning id
