-- One dead letter with all that tells what was asked and what was posted. `posted_no` is the newest submit that may have
-- left us (12 = withdrawn). Locks: none. Index: jobs_pkey, submits_pkey, job_assets_job, batch_rows_job, assets_pkey,
-- attempts_pkey, job_specs_pkey.
select d.*, s.workflow, s.params, j.error -> 'traceback' as traceback,
       coalesce(s.set_values, (
           select r."set" from genflow.batch_rows as r where r.batch_id = d.batch_id and r.job_id = d.root_id limit 1
       )) as set_values,
       (select max(u.no) from genflow.submits as u where u.job_id = d.id and u.state <> 12) as posted_no,
       coalesce((select json_agg(json_build_object('id', a.id, 'hash', encode(a.blob_hash, 'hex'), 'name', a.name,
                                                   'content_type', a.content_type, 'size', a.size))
                 from genflow.job_assets as r
                 join genflow.assets as a on a.id = r.asset_id
                 where r.job_id = d.id), '[]') as inputs
from genflow.dead_letters as d
join genflow.jobs as j on j.id = d.id
join genflow.job_specs as s on s.job_id = d.id
where d.id = %(job)s and d.tenant_id = %(tenant)s
