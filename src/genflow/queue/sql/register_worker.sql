-- A worker process presents itself. Locks: its own new row.
insert into genflow.workers (id, name, host, version, seen_at)
values (%(worker)s, %(name)s, %(host)s, %(version)s, genflow.clock())
