-- Jobs whose time is over, and those whose erasure was asked for. Locks: none; let_go.sql looks again.
-- Index: jobs_erase, jobs_prune.
(select id from genflow.jobs where erase and state >= 10 order by id limit %(limit)s)
union
(select id from genflow.jobs where state >= 10 and expires_at <= genflow.clock() order by expires_at limit %(limit)s)
limit %(limit)s
