-- Which of these jobs have not ended: one look for all requests of a process that wait. Their owners were checked when
-- they began to wait. Locks: none. Index: jobs_live.
select j.id
from unnest(%(jobs)s::uuid[]) as asked (id)
join genflow.jobs as j on j.id = asked.id
where j.state < 10
