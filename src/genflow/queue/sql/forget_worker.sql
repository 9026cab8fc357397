-- A worker process ended in good order. Locks: its own rows. Index: workers_pkey.
delete from genflow.workers
where id = %(worker)s
