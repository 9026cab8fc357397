-- A page of jobs, newest first, below the cursor `before`: those in one of the states, shown as one of the statuses, with
-- all of the labels. Locks: none. Index: jobs_list, job_specs_labels, jobs_live, job_specs_pkey, jobs_pkey.
select j.id, j.seq, j.state, j.cancel_at, j.executing_at, j.created_at, j.ended_at, j.attempt, j.takeovers,
       j.resubmits, j.error ->> 'code' as error_code, s.metadata,
       greatest(j.created_at, j.executing_at, j.cancel_at, j.ended_at) as changed_at
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
where j.tenant_id = %(tenant)s and (j.state < 10 or j.expires_at > genflow.clock())
  and (%(before)s::bigint is null or j.seq < %(before)s)
  and (%(states)s::smallint[] is null or j.state = any(%(states)s))
  and (%(live)s::text[] is null or j.state >= 10
       or case when j.cancel_at is not null then 'canceling' when j.executing_at is not null then 'running'
               else 'queued' end = any(%(live)s))
  and (%(labels)s::jsonb is null or (s.metadata @> %(labels)s and s.metadata <> '{}'))
order by j.seq desc
limit %(limit)s
