-- A job that ended needs its inputs on this server no longer, come whole or not: those that no other job refers to are to be emptied, and
-- are never used again. Answers them, also those of an earlier try. Locks: the files' rows in name order.
-- Index: server_file_refs_job, server_files_pkey, server_file_refs_pkey.
with named as materialized (
    select f.server_id, f.name, f.state
    from genflow.server_file_refs as r
    join genflow.server_files as f using (server_id, name)
    where r.job_id = %(job)s and r.server_id = %(server)s
    order by f.name
    for update of f
), unused as (
    select named.name
    from named
    where not exists (
        select 1 from genflow.server_file_refs as other
        where other.server_id = named.server_id and other.name = named.name and other.job_id <> %(job)s)
), emptying as (
    update genflow.server_files as f
    set state = 2
    from unused
    where f.server_id = %(server)s and f.name = unused.name and f.state in (1, 4)
)
select unused.name
from unused
join named using (name)
where named.state <> 3
order by unused.name
