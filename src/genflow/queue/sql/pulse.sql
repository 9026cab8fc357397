-- Which of these jobs changed as their watchers see them: a text each, alike where nothing did. A job that is gone is left out.
-- Locks: none. Index: jobs_pkey, job_live_pkey.
select j.id, concat_ws(' ', j.state, j.cancel_at, j.executing_at, j.server_id, l.updated_at, l.preview_no) as pulse
from unnest(%(jobs)s::uuid[]) as wanted (id)
join genflow.jobs as j on j.id = wanted.id
left join genflow.job_live as l on l.job_id = j.id
where j.state < 10 or j.expires_at > genflow.clock()
