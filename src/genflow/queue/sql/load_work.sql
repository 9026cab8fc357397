-- What the holder of a job needs to go on after its last checkpoint. Locks: none. Index: assets_pkey, attempts_pkey,
-- job_assets_job, job_secrets_pkey, job_specs_pkey, jobs_pkey, server_file_refs_job, server_files_pkey, submits_pkey.
select j.id, j.step, j.attempt, j.takeovers, j.resubmits, j.collects, j.cancel_at, j.executing_at, j.server_id,
       extract(epoch from genflow.clock() - j.created_at)::float8 as age_s,
       s.workflow, s.policy, (select x.sealed from genflow.job_secrets as x where x.job_id = j.id) as sealed,
       (select row_to_json(u) from (
            select no, uuid, attempt, server_id, boot, slot, state, client_id, stop_reason, entry,
                   exec_start_ms, exec_end_ms,
                   extract(epoch from genflow.clock() - ended_at)::float8 as ended_ago_s,
                   extract(epoch from genflow.clock() - running_at)::float8 as running_for_s
            from genflow.submits where job_id = j.id order by no desc limit 1) as u) as submit,
       array(select distinct d.server_id
             from genflow.submits as d
             where d.job_id = j.id and (d.doubtful or d.state = 14)) as doubtful,
       coalesce((select json_agg(json_build_object('server_id', f.server_id, 'name', f.name, 'boot', f.boot,
                                                   'hash', encode(f.hash, 'hex')))
                 from genflow.server_file_refs as r
                 join genflow.server_files as f using (server_id, name)
                 where r.job_id = j.id and f.state = 1), '[]') as uploads,
       coalesce((select json_agg(json_build_object('id', a.id, 'hash', encode(a.blob_hash, 'hex'), 'name', a.name,
                                                   'content_type', a.content_type, 'size', a.size))
                 from genflow.job_assets as r
                 join genflow.assets as a on a.id = r.asset_id
                 where r.job_id = j.id), '[]') as inputs,
       (select count(*) from genflow.submits as b where b.job_id = j.id and b.stop_reason = 'neighbour') as taken_back,
       (select count(*) from genflow.attempts as a where a.job_id = j.id and a.class = 'oom') as oom_attempts,
       (select count(*) from genflow.attempts as a where a.job_id = j.id and a.class = 'gone') as gone_attempts
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
where j.id = %(job)s
