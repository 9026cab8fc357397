"""Retention's statements read what is due and not the table, with 50,000 rows that are not."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from genflow.queue.erasure import BATCH, BLOB_LEASE_S, SETTLE_S
from genflow.queue.statements import statement
from tests.queue.conftest import Bench

MOST_COST = 400.0
"""Of one step, in the planner's unit; reading 50,000 rows once for each of a batch costs thousands at least."""

MANY = """
set session_replication_role = replica;
insert into genflow.jobs (id, state, created_at, ended_at, expires_at)
select gen_random_uuid(), 10, genflow.clock(), genflow.clock(), genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.blobs (hash, sha256, size, touched_at)
select decode(lpad(to_hex(n), 64, '0'), 'hex'), '', 1, case when n % 2 = 0 then genflow.clock() end
from generate_series(1, 50000) as n;
insert into genflow.assets (id, blob_hash, kind, name, type, content_type, size, created_at, expires_at)
select gen_random_uuid(), decode(lpad(to_hex(n), 64, '0'), 'hex'), 'upload', 'a', 'image', 'image/png', 1,
       genflow.clock(), genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.job_keys
select 1, 'submit', n::text, gen_random_uuid(), '', genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
insert into genflow.late_receipts
select gen_random_uuid(), n, genflow.clock(), true from generate_series(1, 50000) as n;
insert into genflow.batches
select gen_random_uuid(), 1, 'b', 1, genflow.clock(), genflow.clock() + n * interval '1 s'
from generate_series(1, 50000) as n;
set session_replication_role = origin;
analyze genflow.jobs, genflow.blobs, genflow.assets, genflow.job_keys, genflow.late_receipts, genflow.batches;
"""


async def test_no_sweep_reads_a_table(bench: Bench) -> None:
    async with bench.pool.connection() as connection:
        await connection.execute(MANY)

    async def plan(name: str, **params: Any) -> str:
        async with bench.pool.connection() as connection:
            # What a plan for the parameters' values shows is what psycopg's unprepared statements get.
            cursor = await connection.execute(b"explain " + statement(name).encode(), params)
            return "\n".join(row["QUERY PLAN"] for row in await cursor.fetchall())

    for name, indexes in {
        "past_jobs": ("jobs_erase", "jobs_prune"),
        "take_blobs": ("blobs_loose", "blobs_going", "assets_blob"),
        "bury_blobs": ("blobs_going",),
        "prune_uploads": ("assets_expire",),
        "prune_keys": ("job_keys_expire",),
        "prune_receipts": ("late_receipts_prune",),
        "prune_batches": ("batches_prune",),
        "let_go": ("jobs_pkey",),
        "doom_orphans": ("blobs_pkey",),
    }.items():
        shown = await plan(
            name, limit=BATCH, grace_s=86_400.0, lease_s=BLOB_LEASE_S, settle_s=SETTLE_S, jobs=[uuid4()],
            hashes=[b"h" * 32],
        )  # fmt: skip
        assert all(index in shown for index in indexes), f"{name} does not go by {indexes}:\n{shown}"
        cost = float(shown.partition("..")[2].split()[0])
        assert cost < MOST_COST, f"{name} costs {cost}:\n{shown}"
        for table in ("jobs", "blobs", "assets", "job_keys", "late_receipts", "batches"):
            assert f"Seq Scan on {table} " not in shown, f"{name} reads all of {table}:\n{shown}"
