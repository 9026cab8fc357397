-- Before the first byte of an upload leaves: these inputs may lie on this server from now on (state 4), whatever becomes
-- of the upload and of its worker, so that they are taken away there once the job is over.
-- Locks: the job's row (fence). Index: jobs_pkey, server_files_pkey, server_file_refs_pkey.
with held as materialized (
    select id from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), files as (
    select name, decode(hash, 'hex') as hash
    from unnest(%(names)s::text[], %(hashes)s::text[]) as file (name, hash)
), coming as (
    insert into genflow.server_files (server_id, name, hash, state)
    select %(server)s, files.name, files.hash, 4
    from held, files
    on conflict (server_id, name) do nothing
), referenced as (
    insert into genflow.server_file_refs (server_id, name, job_id)
    select %(server)s, files.name, held.id
    from held, files
    on conflict (server_id, name, job_id) do nothing
)
update genflow.jobs as j
set lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id
