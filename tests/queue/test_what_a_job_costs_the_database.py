"""Budgets of a job and of a heartbeat, as counts that no machine's speed changes: statements, WAL, replaced rows.

On a PostgreSQL of its own that writes no full pages (how many there are depends on when it checkpoints) and vacuums
nothing. What is measured stands in docs/design/tables.md; `pytest -rP` on this file prints it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.pool import open_pool
from genflow.queue import DirectWriter, Hold, Ledger, Queue, Sweeps
from genflow.queue.writer import Row, written_alone
from tests.queue.conftest import ENTRY, TIMING, Bench, output
from tests.support.postgres import open_folder, serving

JOBS, WARM = 40, 10
BEATS = 20

STATEMENTS = ["claim_unbound", "load_work", "intent", "receipt", "running", "run_ended", "clock", "finish"]
"""What one job without inputs takes of a worker; all but `load_work` and `clock` are a commit each."""
WAL_IN_JOBS_B, WAL_B = 2_550, 6_500
"""Of a job in `jobs` with its indexes, and in all tables."""
REPLACED_IN_JOBS, REPLACED = 6, 11
"""Rows of a job that updates leave behind, in `jobs` and in all tables."""
NOT_HEAP_ONLY = 3
"""Those in `jobs` that an index saw: claim, intent and finish change what indexes go by."""
WAL_OF_A_BEAT_B = 150
"""Of each held job, a third of them for the lock that is taken in the order of ids before the update."""


class Counting:
    """A writer that notes what it sends."""

    def __init__(self, inner: DirectWriter) -> None:
        self._inner = inner
        self.sent: list[str] = []

    @property
    def outages(self) -> int:
        return self._inner.outages

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        self.sent.append(name)
        return await self._inner.write(name, params)

    async def write_row(self, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
        return await written_alone(self, name, common, row)


@pytest.fixture(scope="module")
def quiet_database() -> Iterator[str]:
    with open_folder() as folder:
        settings = {"full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}
        server = EmbeddedPostgres(folder / "data", state=folder / "state", settings=settings)
        try:
            with serving(server.start()) as databases:
                conninfo = databases.create()
                with psycopg.connect(conninfo, autocommit=True) as connection:
                    connection.execute("create extension pg_walinspect")
                yield conninfo
                databases.drop(conninfo)
        finally:
            server.stop()


@pytest.fixture
async def bench(quiet_database: str) -> AsyncIterator[Bench]:
    async with await open_pool(quiet_database, min_size=1, max_size=1) as pool:
        writer = DirectWriter(pool)
        yield Bench(pool, Queue(pool, queue_limit=1_000, retention_s=3600.0), Sweeps(writer, lease_s=0.0), writer)


async def wal_by_table(bench: Bench, since: str) -> Counter[str]:
    """Bytes of WAL records since then, by the table whose blocks, or whose indexes' blocks, they are of."""
    rows = await bench.rows(
        """
        select coalesce(t.relname, c.relname) as name, sum(share)::float8 as bytes
        from (select relfilenode, record_length::numeric / count(*) over (partition by start_lsn) as share
              from pg_get_wal_block_info(%s, pg_current_wal_insert_lsn())) as block
        join pg_class as c on pg_relation_filenode(c.oid) = block.relfilenode
        left join pg_index as i on i.indexrelid = c.oid
        left join pg_class as t on t.oid = i.indrelid
        where c.relnamespace = 'genflow'::regnamespace
        group by 1
        """,
        since,
    )
    return Counter({row["name"]: row["bytes"] for row in rows})


async def wal_now(bench: Bench) -> str:
    [row] = await bench.rows("select pg_current_wal_insert_lsn()::text as lsn")
    lsn: str = row["lsn"]
    return lsn


async def replaced(bench: Bench) -> dict[str, tuple[int, int]]:
    """Rows that were updated, and those of them that were not heap-only, by table."""
    await bench.rows("select pg_stat_force_next_flush()")
    rows = await bench.rows(
        "select relname, n_tup_upd, n_tup_upd - n_tup_hot_upd as moved from pg_stat_user_tables"
        " where schemaname = 'genflow' and n_tup_upd > 0"
    )
    return {row["relname"]: (row["n_tup_upd"], row["moved"]) for row in rows}


async def to_its_end(ledger: Ledger, server: int) -> UUID:
    """One job's way through a worker, as an attempt without inputs goes it."""
    [(_, hold)] = await ledger.claim_unbound(server, slots=2, limit=1)
    await ledger.load(hold)
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.receipt(hold, intent.no, number=0.0, client_id="c")
    await ledger.running(hold, intent.no, deadline_s=60.0)
    await ledger.run_ended(hold, intent.no, ENTRY)
    began = await ledger.clock()
    await ledger.finish(hold, [output()], began=began)
    return hold.job_id


async def counted(bench: Bench, writer: Counting) -> tuple[Ledger, int]:
    await bench.worker("w1")
    server = await bench.server()
    return Ledger(writer, bench.worker_ids["w1"], TIMING, retention_s=3600.0), server


async def test_a_job_takes_these_statements_and_no_more(bench: Bench) -> None:
    writer = Counting(bench.writer)
    ledger, server = await counted(bench, writer)
    await bench.enqueue()
    await to_its_end(ledger, server)
    assert writer.sent == STATEMENTS


async def test_a_job_stays_within_its_budget(bench: Bench) -> None:
    ledger, server = await counted(bench, Counting(bench.writer))
    for _ in range(WARM):
        await bench.enqueue()
        await to_its_end(ledger, server)
    before, since = await replaced(bench), await wal_now(bench)
    for _ in range(JOBS):
        await bench.enqueue()
        await to_its_end(ledger, server)
    wal, after = await wal_by_table(bench, since), await replaced(bench)
    of_a_job = {
        table: ((updates - before.get(table, (0, 0))[0]) / JOBS, (moved - before.get(table, (0, 0))[1]) / JOBS)
        for table, (updates, moved) in after.items()
    }
    print({table: round(size / JOBS) for table, size in wal.items()}, of_a_job)
    assert 0 < wal["jobs"] / JOBS <= WAL_IN_JOBS_B
    assert wal.total() / JOBS <= WAL_B
    assert 0 < of_a_job["jobs"][0] <= REPLACED_IN_JOBS
    assert of_a_job["jobs"][1] <= NOT_HEAP_ONLY
    assert sum(updates for updates, _ in of_a_job.values()) <= REPLACED


async def test_a_heartbeat_stays_within_its_budget(bench: Bench) -> None:
    ledger, server = await counted(bench, Counting(bench.writer))
    for _ in range(JOBS):
        await bench.enqueue()
    holds: Sequence[Hold] = [hold for _, hold in await ledger.claim_unbound(server, slots=JOBS, limit=JOBS)]
    await ledger.heartbeat(holds, draining=False)
    since = await wal_now(bench)
    for _ in range(BEATS):
        await ledger.heartbeat(holds, draining=False)
    wal = await wal_by_table(bench, since)
    of_a_beat = wal.total() / (BEATS * JOBS)
    print(f"{of_a_beat:.0f} B of WAL a job and heartbeat: {dict(wal)}")
    assert 0 < of_a_beat <= WAL_OF_A_BEAT_B
