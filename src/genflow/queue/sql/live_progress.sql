-- Live progress of the watched jobs of one worker, and the newest preview where there is a new one; of those that it still
-- holds alone. Locks: rows of job_live. Index: job_live_pkey, jobs_pkey.
update genflow.job_live as live
set progress = coalesce(news.progress::json, live.progress), updated_at = genflow.clock(),
    preview = coalesce(news.preview, live.preview), preview_node = coalesce(news.preview_node, live.preview_node),
    preview_no = live.preview_no + (news.preview is not null)::int
from unnest(%(jobs)s::uuid[], %(tokens)s::bigint[], %(progress)s::text[], %(previews)s::bytea[], %(preview_nodes)s::text[])
     as news (job_id, token, progress, preview, preview_node)
join genflow.jobs as j on j.id = news.job_id and j.token = news.token
where live.job_id = news.job_id and live.watched_until > genflow.clock()
returning live.job_id
