-- Checkpoint: this job's inputs are on this server. Locks: the job's row (fence). Index: jobs_pkey, server_files_pkey.
with held as materialized (
    select id from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), files as (
    select name, decode(hash, 'hex') as hash
    from unnest(%(names)s::text[], %(hashes)s::text[]) as file (name, hash)
), stored as (
    insert into genflow.server_files as known (server_id, name, hash, boot)
    select %(server)s, files.name, files.hash, %(boot)s
    from held, files
    on conflict (server_id, name) do update set boot = excluded.boot, state = 1 where known.state in (1, 4)
    returning name
), referenced as (
    insert into genflow.server_file_refs (server_id, name, job_id)
    select %(server)s, stored.name, held.id
    from held, stored
    on conflict do nothing
)
update genflow.jobs as j
set step = greatest(j.step, 1::smallint),
    lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning j.id
