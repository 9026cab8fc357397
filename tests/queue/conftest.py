"""A queue on a real database, and workers that use it without any server behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from genflow.failures import Policy
from genflow.postgres.pool import Pool, open_pool
from genflow.protocol import HistoryEntry, Timing
from genflow.queue import DirectWriter, Hold, Ledger, Queue, Registry, Sweeps
from genflow.queue.records import NewJob, StoredOutput
from genflow.queue.writer import Row

TIMING = Timing.from_lease(30.0)
ENTRY = HistoryEntry("success", None, {"3": {"images": []}}, None, 1_000, 3_500, {})
"""A run that ended well, in 2.5 s."""


def output(name: str = "a.png") -> StoredOutput:
    """An output of node 3, as if it had been stored."""
    return StoredOutput(uuid4(), b"h" * 32, b"s" * 32, 12, "3", "images", 0, name, "image", "image/png")


@dataclass
class Bench:
    """The queue, its sweeps, and workers by name."""

    pool: Pool
    queue: Queue
    sweeps: Sweeps
    writer: DirectWriter
    workers: dict[str, Ledger] = field(default_factory=dict)
    worker_ids: dict[str, UUID] = field(default_factory=dict)

    async def worker(self, name: str) -> Ledger:
        if name not in self.workers:
            worker_id = uuid4()
            await Registry(self.writer, worker_id).register_worker(name=name, host="test", version="0")
            self.worker_ids[name] = worker_id
            self.workers[name] = Ledger(self.writer, worker_id, TIMING, retention_s=3600.0)
        return self.workers[name]

    async def server(self, name: str = "gpu0", slots: int = 2, *, vram: int | None = None) -> int:
        rows = await self.writer.write("register_server", {"name": name, "slots": slots, "tags": [], "vram": vram})
        server_id: int = rows[0]["id"]
        return server_id

    async def enqueue(
        self,
        *,
        key: str | None = None,
        policy: Policy | None = None,
        start_by_s: float | None = None,
        workflow: str = "{}",
    ) -> UUID:
        job = NewJob(
            id=uuid4(),
            workflow=workflow,
            body_hash=b"hash",
            policy=policy or Policy(jitter=False),
            idempotency_key=key,
            start_by_s=start_by_s,
        )
        await self.queue.enqueue(job)
        return job.id

    async def claim(self, name: str, server_id: int, *, limit: int = 1, slots: int = 2) -> list[Hold]:
        ledger = await self.worker(name)
        return [hold for _, hold in await ledger.claim_unbound(server_id, slots=slots, limit=limit)]

    async def row(self, job_id: UUID) -> Row:
        async with self.pool.connection() as connection:
            cursor = await connection.execute("select * from genflow.jobs where id = %s", [job_id])
            row = await cursor.fetchone()
            assert row is not None
            return row

    async def rows(self, query: str, *params: object) -> list[Row]:
        async with self.pool.connection() as connection:
            return await (await connection.execute(query.encode(), params)).fetchall()

    async def let_leases_run_out(self) -> None:
        await self.rows(
            "update genflow.jobs set lease_until = genflow.clock() - interval '1 s' where state = 3 returning 1"
        )


async def waits_for_a_lock(bench: Bench, word: str, *, times: int = 1) -> None:
    """Return once so many statements that begin with `word` wait for a lock."""
    async with asyncio.timeout(10):
        while True:
            waiting = await bench.rows(
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
                " and datname = current_database()",
                word + "%",
            )
            if len(waiting) >= times:
                return
            await asyncio.sleep(0.01)  # Postgres has no event for it


@pytest.fixture
async def bench(database: str) -> AsyncIterator[Bench]:
    async with await open_pool(database, min_size=1, max_size=8) as pool:
        writer = DirectWriter(pool)
        # lease 0: the sweep's respect for a database that has just started is tested by itself
        yield Bench(pool, Queue(pool, queue_limit=100, retention_s=3600.0), Sweeps(writer, lease_s=0.0), writer)
