-- Whether a submit was written, after a commit whose outcome is unknown, by one who still holds its job.
-- Locks: none. Index: submits_uuid_key, jobs_pkey.
select u.no, u.attempt
from genflow.submits as u
join genflow.jobs as j on j.id = u.job_id
where u.uuid = %(submit)s and j.token = %(token)s and j.worker_id = %(worker)s
