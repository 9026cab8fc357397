-- These inputs hold nothing any more on this server. Their names are kept as used up while the job is there, and then go
-- with it; those of a job that is gone go now. Locks: the job's row, so that it doesn't go meanwhile; the files' rows.
-- Index: jobs_pkey, server_files_pkey, server_file_refs_job.
with job as materialized (
    select id from genflow.jobs where id = %(job)s for key share
), struck as (
    delete from genflow.server_file_refs as r
    where r.server_id = %(server)s and r.job_id = %(job)s and not exists (select 1 from job)
), gone as (
    delete from genflow.server_files as f
    where f.server_id = %(server)s and f.name = any(%(names)s) and not exists (select 1 from job)
)
update genflow.server_files
set state = 3
where server_id = %(server)s and name = any(%(names)s) and exists (select 1 from job)
