-- Somebody looks at this job: its holder writes live progress for a while. Locks: the row of job_live. Index: job_live_pkey.
insert into genflow.job_live as live (job_id, watched_until)
values (%(job)s, genflow.clock() + interval '15 s')
on conflict (job_id) do update set watched_until = excluded.watched_until
