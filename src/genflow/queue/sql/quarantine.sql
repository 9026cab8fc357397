-- Keep new work from a server for a while, with the reason; `needs_run`: until it ran a trial after that, which a milder
-- reason does not take back. Locks: the server's row. Index: servers_pkey.
update genflow.servers
set state = 2, quarantined_until = genflow.clock() + %(seconds)s * interval '1 s',
    reason = case when state = 2 and needs_run and not %(needs_run)s then reason else %(reason)s end,
    needs_run = %(needs_run)s or (state = 2 and needs_run)
where id = %(server)s and state in (1, 2)
returning id
