-- A worker process presents itself; sent again after a lost commit it finds itself. Locks: its own new row.
-- Index: workers_pkey.
insert into genflow.workers (id, name, host, version, seen_at)
values (%(worker)s, %(name)s, %(host)s, %(version)s, genflow.clock())
on conflict (id) do update set seen_at = excluded.seen_at
