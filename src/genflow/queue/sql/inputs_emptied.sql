-- These inputs hold nothing any more on this server. Locks: the files' rows. Index: server_files_pkey.
update genflow.server_files
set state = 3
where server_id = %(server)s and name = any(%(names)s)
