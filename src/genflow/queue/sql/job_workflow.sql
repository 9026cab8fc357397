-- The workflow as it was sent, and the files that it names. Locks: none. Index: job_specs_pkey, job_assets_job,
-- assets_pkey, jobs_pkey.
select s.workflow,
       coalesce((select json_agg(json_build_object('id', a.id, 'hash', encode(a.blob_hash, 'hex'), 'name', a.name,
                                                   'content_type', a.content_type, 'size', a.size))
                 from genflow.job_assets as r
                 join genflow.assets as a on a.id = r.asset_id
                 where r.job_id = s.job_id), '[]') as inputs
from genflow.job_specs as s
join genflow.jobs as j on j.id = s.job_id
where j.id = %(job)s and j.tenant_id = %(tenant)s and (j.state < 10 or j.expires_at > genflow.clock())
