-- Tell every worker that there is work. A hint, in a transaction of its own. Locks: none.
select pg_notify('genflow', 'queued')
