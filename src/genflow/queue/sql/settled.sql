-- Which of these jobs a broker's message need not wait for any longer: ended or gone, and where a dead letter is to be
-- told, its telling marked. Locks: none. Index: chores_kind_job_id_submit_no_key, jobs_live.
select asked.id
from unnest(%(jobs)s::uuid[]) as asked (id)
where not exists (select 1 from genflow.jobs as j where j.id = asked.id and j.state < 10)
  and not exists (
      select 1 from genflow.chores as c where c.kind = 'rabbit_dead' and c.job_id = asked.id and c.submit_no = 0)
