-- These inputs of a held job are gone from this server, though they were there: whoever submits it there uploads them again.
-- Locks: the job's row (fence), the files' rows. Index: jobs_pkey, server_files_pkey.
with held as materialized (
    select id from genflow.jobs
    where id = %(job)s and token = %(token)s and worker_id = %(worker)s
    for update
), forgotten as (
    delete from genflow.server_files as f
    using held
    where f.server_id = %(server)s and f.name = any(%(names)s)
)
select id from held
