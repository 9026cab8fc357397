-- Count a run beyond the one on its job. Locks: the job's row. Index: jobs_pkey.
update genflow.jobs
set doubled = doubled + 1
where id = %(job)s
returning doubled
