-- Uploads past their time that no live job refers to. A minute late: a submit that still saw one has committed by then.
-- Locks: the assets' rows, skipping those at work. Index: assets_expire, job_assets_pkey, assets_pkey, jobs_pkey.
with old as materialized (
    select a.id
    from genflow.assets as a
    where a.kind = 'upload' and a.expires_at < genflow.clock() - interval '1 min'
      and not exists (
          select 1
          from genflow.job_assets as r
          join genflow.jobs as j on j.id = r.job_id
          where r.asset_id = a.id and j.state + 0 < 10)
    order by a.expires_at
    limit %(limit)s
    for update skip locked
)
delete from genflow.assets as a
using old
where a.id = old.id
returning a.id
