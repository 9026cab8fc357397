-- The workflow as it was sent. Locks: none. Index: job_specs_pkey.
select s.workflow
from genflow.job_specs as s
join genflow.jobs as j on j.id = s.job_id
where j.id = %(job)s and j.tenant_id = %(tenant)s and (j.state < 10 or j.expires_at > genflow.clock())
