-- Batches past their time without a live job, and their rows. Few at a time: each may have very many rows.
-- Locks: the batches' rows, skipping those at work. Index: batches_prune, jobs_batch, batches_pkey, jobs_live.
with old as materialized (
    select b.id
    from genflow.batches as b
    where b.expires_at <= genflow.clock()
      and not exists (select 1 from genflow.jobs as j where j.batch_id = b.id and j.state < 10)
    order by b.expires_at
    limit 2
    for update skip locked
)
delete from genflow.batches as b
using old
where b.id = old.id
returning b.id
