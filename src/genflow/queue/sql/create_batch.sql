-- A file's rows as a batch; sent again, or for a mended file, it is brought up to what the file says now. Zero rows: another
-- tenant has a batch of just these ids.
-- Locks: the batch's row, its rows. Index: batches_pkey, batch_rows_pkey.
with batch as (
    insert into genflow.batches as known (id, tenant_id, name, created_at, expires_at)
    values (%(batch)s, %(tenant)s, %(name)s, genflow.clock(), genflow.clock() + %(retention_s)s * interval '1 s')
    on conflict (id) do update set name = excluded.name, expires_at = excluded.expires_at
    where known.tenant_id = excluded.tenant_id
    returning id
)
insert into genflow.batch_rows as known (batch_id, row_no, job_id, "set")
select batch.id, r.row_no, r.job, r."set"::json
from batch, unnest(%(rows)s::int[], %(jobs)s::uuid[], %(sets)s::text[]) as r (row_no, job, "set")
on conflict (batch_id, row_no) do update set job_id = excluded.job_id, "set" = excluded."set"
returning row_no
