-- A page of jobs, newest first, below the cursor `before`. Locks: none. Index: jobs_list.
select j.id, j.seq, j.state, j.cancel_at, j.executing_at, j.created_at, j.ended_at, j.attempt, j.takeovers,
       j.resubmits, j.error ->> 'code' as error_code, s.metadata
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
where j.tenant_id = %(tenant)s and (j.state < 10 or j.expires_at > genflow.clock())
  and (%(before)s::bigint is null or j.seq < %(before)s)
  and (%(states)s::smallint[] is null or j.state = any(%(states)s))
order by j.seq desc
limit %(limit)s
