-- A batch's rows as they stand now, after row `after`: each with its newest job, what was set in that one, its last
-- attempt, and its files.
-- Times are seconds: in the queue before the first run, of the job from acceptance to end, of the last attempt.
-- Locks: none. Index: batch_rows_pkey, job_specs_root, jobs_pkey, attempts_pkey, assets_output, batches_pkey,
-- blobs_pkey, job_specs_pkey.
select r.row_no, r.job_id as row_job, coalesce(s.set_values, r."set") as "set", j.id, j.state, j.cancel_at, j.executing_at, j.attempt as attempts, j.error,
       a.server, a.seconds as attempt_s, a.gpu_ms,
       extract(epoch from coalesce(j.executing_at, j.ended_at) - j.created_at)::float8 as queued_s,
       extract(epoch from j.ended_at - j.created_at)::float8 as job_s,
       coalesce((
           select json_agg(json_build_object('id', f.id, 'node', f.node_id, 'name', f.name,
                                             'blake3', encode(f.blob_hash, 'hex'), 'sha256', encode(k.sha256, 'hex'))
                           order by f.node_id, f.key, f.idx)
           from genflow.assets as f
           join genflow.blobs as k on k.hash = f.blob_hash
           where f.job_id = j.id and f.kind = 'output' and not f.partial
       ), '[]') as files
from genflow.batch_rows as r
join genflow.batches as b on b.id = r.batch_id
cross join lateral (select genflow.newest(r.job_id) as id) as newest
left join genflow.jobs as j on j.id = newest.id
left join genflow.job_specs as s on s.job_id = newest.id
left join lateral (
    select v.name as server, t.gpu_ms, extract(epoch from t.ended_at - t.started_at)::float8 as seconds
    from genflow.attempts as t
    join genflow.servers as v on v.id = t.server_id
    where t.job_id = j.id
    order by t.no desc
    limit 1
) as a on true
where r.batch_id = %(batch)s and b.tenant_id = %(tenant)s and r.row_no > %(after)s
order by r.row_no
limit %(limit)s
