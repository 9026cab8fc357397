-- Jobs as the API shows them, outputs included; of one tenant, or (null) of those that were found to be theirs before.
-- The time of one that is live moves on once half of it went by; it begins with the end.
-- Locks: none. Index: jobs_pkey, jobs_claim, assets_output, job_live_pkey, job_specs_pkey, submits_pkey.
select j.id, j.state, j.cancel_at, j.executing_at, j.created_at, j.ended_at, j.error,
       case when j.state < 10 and j.expires_at < genflow.clock() + (j.expires_at - j.created_at) / 2
            then genflow.clock() + (j.expires_at - j.created_at) else j.expires_at end as expires_at,
       j.attempt, j.takeovers, j.resubmits, j.doubled, s.metadata, s.params, l.progress,
       coalesce(l.preview_no, 0) as preview_no,
       (l.watched_until is null or l.watched_until < genflow.clock() + interval '5 s') as unwatched,
       case when j.state = 2 and j.server_id is null and j.cancel_at is null then (
           select count(*)
           from (select 1
                 from genflow.jobs as ahead
                 where ahead.state = 2 and ahead.server_id is null and ahead.class_id = j.class_id
                   and (ahead.priority, ahead.vtime, ahead.seq) <= (j.priority, j.vtime, j.seq)
                 limit 1001) as counted
       ) end as queue_position,
       (select max(u.exec_end_ms - u.exec_start_ms) from genflow.submits as u where u.job_id = j.id) as execution_ms,
       coalesce((
           select json_agg(json_build_object(
                      'id', a.id, 'node_id', a.node_id, 'name', a.name, 'type', a.type,
                      'content_type', a.content_type, 'size', a.size, 'hash', encode(a.blob_hash, 'hex'),
                      'text', a.content,
                      'expires_at', a.expires_at) order by a.node_id, a.key, a.idx)
           from genflow.assets as a
           where a.job_id = j.id and a.kind = 'output' and not a.partial
       ), '[]') as outputs
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
left join genflow.job_live as l on l.job_id = j.id
where j.id = any(%(jobs)s) and (%(tenant)s::int is null or j.tenant_id = %(tenant)s)
  and (j.state < 10 or j.expires_at > genflow.clock())
