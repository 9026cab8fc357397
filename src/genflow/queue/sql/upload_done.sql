-- Checkpoint: these jobs' inputs are on their servers. A row for each job that is held; one that is missing is not.
-- Locks: the jobs' rows in the order of ids (fence), then the files' in theirs. Index: jobs_pkey, server_files_pkey.
with held as materialized (
    select j.id, asked.place, asked.server, asked.boot
    from unnest(%(job)s::uuid[], %(token)s::bigint[], %(server)s::int[], %(boot)s::uuid[])
        with ordinality as asked (job, token, server, boot, place)
    join genflow.jobs as j on j.id = asked.job and j.token = asked.token
    where j.worker_id = %(worker)s
    order by j.id
    for update of j
), files as (
    select held.id, held.server, held.boot, file.name, decode(file.hash, 'hex') as hash
    from unnest(%(of)s::int[], %(names)s::text[], %(hashes)s::text[]) as file (place, name, hash)
    join held on held.place = file.place
), stored as (
    insert into genflow.server_files as known (server_id, name, hash, boot)
    select server, name, hash, boot
    from files
    order by server, name
    on conflict (server_id, name) do update set boot = excluded.boot, state = 1 where known.state in (1, 4)
    returning server_id, name
), referenced as (
    insert into genflow.server_file_refs (server_id, name, job_id)
    select stored.server_id, stored.name, files.id
    from stored
    join files on files.server = stored.server_id and files.name = stored.name
    on conflict do nothing
)
update genflow.jobs as j
set step = greatest(j.step, 1::smallint),
    lease_until = greatest(j.lease_until, genflow.clock() + %(lease_s)s * interval '1 s')
from held
where j.id = held.id
returning held.place
