-- Whether jobs of this batch have left something on their servers that is still to be taken away. Locks: none.
-- Index: jobs_batch, chores_job.
select 1
from genflow.jobs as j
join genflow.chores as c on c.job_id = j.id
where j.batch_id = %(batch)s and c.kind = 'scrub'
limit 1
