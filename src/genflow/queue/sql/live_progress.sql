-- Live progress of the watched jobs of one worker. Locks: rows of job_live. Index: job_live_pkey.
update genflow.job_live as live
set progress = news.progress::json, updated_at = genflow.clock()
from unnest(%(jobs)s::uuid[], %(progress)s::text[]) as news (job_id, progress)
where live.job_id = news.job_id and live.watched_until > genflow.clock()
returning live.job_id
