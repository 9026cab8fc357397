-- Give back jobs that this worker holds without knowing: the answer to a claim was lost with its connection.
-- Nobody works on them, so nothing was sent. Locks: the stray rows. Index: jobs_held, jobs_pkey.
with stray as materialized (
    select id
    from genflow.jobs
    where state = 3 and worker_id = %(worker)s and id <> all(%(known)s)
    order by id
    for update skip locked
)
update genflow.jobs as j
set state = 2, token = j.token + 1, worker_id = null
from stray
where j.id = stray.id
returning j.id
