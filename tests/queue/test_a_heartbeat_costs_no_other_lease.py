"""One row that stays locked, or whose statement fails: every other job of the worker keeps its lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from genflow.postgres.pool import Pool, open_pool
from genflow.queue import DirectWriter, Hold, Ledger
from genflow.queue.writer import Row
from tests.queue.conftest import TIMING, Bench, waits_for_a_lock

LOCK_TIMEOUT_S = 0.4


@pytest.fixture
async def held(bench: Bench) -> list[Hold]:
    """Four jobs of one worker whose leases have nearly run out."""
    server = await bench.server(slots=4)
    for _ in range(4):
        await bench.enqueue()
    holds = await bench.claim("w1", server, limit=4, slots=4)
    await bench.rows("update genflow.jobs set lease_until = genflow.clock() + interval '1 s' returning 1")
    for hold in holds:
        hold.deadline = 0.0
    return sorted(holds, key=lambda hold: hold.job_id)


@asynccontextmanager
async def heart(bench: Bench, database: str) -> AsyncIterator[Ledger]:
    """The worker's heartbeat as a worker has it: one connection of its own, on which no lock is waited for long."""
    async with await open_pool(database, 1, 1, lock_timeout_s=LOCK_TIMEOUT_S) as pool:
        writer = DirectWriter(pool, through_locks=False)
        yield Ledger(writer, bench.worker_ids["w1"], TIMING, retention_s=3600.0)


async def leases(bench: Bench) -> dict[UUID, tuple[datetime, bool]]:
    """Each job's lease, and whether it was renewed."""
    rows = await bench.rows(
        "select id, lease_until, lease_until > genflow.clock() + interval '20 s' as renewed from genflow.jobs"
    )
    return {row["id"]: (row["lease_until"], row["renewed"]) for row in rows}


async def test_a_row_that_stays_locked_costs_only_its_own_beat(bench: Bench, database: str, held: list[Hold]) -> None:
    locked, *others = held  # the first in the order of ids: the statement for all waits for it before any other
    async with heart(bench, database) as ledger, bench.pool.connection() as connection:
        async with connection.transaction():
            await connection.execute("select 1 from genflow.jobs where id = %s for update", [locked.job_id])
            beat = asyncio.create_task(ledger.heartbeat(held, draining=False))
            await waits_for_a_lock(bench, "-- Renew every lease")
            assert await beat == set()
            after = await leases(bench)
            assert [after[hold.job_id][1] for hold in held] == [False, True, True, True]
            assert all(hold.allows() for hold in others)
            assert (locked.allows(), locked.lost) == (False, False), "nobody took it: it is renewed by a later beat"
        assert await ledger.heartbeat(held, draining=False) == set()
        assert all(renewed for _, renewed in (await leases(bench)).values())
        assert locked.allows()


async def test_a_cancel_and_a_loss_are_learned_row_by_row_too(bench: Bench, database: str, held: list[Hold]) -> None:
    locked, canceled, lost, kept = held
    await bench.rows("update genflow.jobs set cancel_at = genflow.clock() where id = %s returning 1", canceled.job_id)
    await bench.rows("update genflow.jobs set token = token + 1 where id = %s returning 1", lost.job_id)
    async with heart(bench, database) as ledger, bench.pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from genflow.jobs where id = %s for update", [locked.job_id])
        assert await ledger.heartbeat(held, draining=False) == {canceled.job_id}
    assert [hold.lost for hold in (locked, canceled, lost, kept)] == [False, False, True, False]


class Refusing(DirectWriter):
    """A writer whose statements fail where they concern one job."""

    def __init__(self, pool: Pool, job: UUID) -> None:
        super().__init__(pool)
        self._job = job

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        if self._job in params["jobs"]:
            raise psycopg.DataError("one bad row")
        return await super().write(name, params)


async def test_a_row_that_postgres_refuses_costs_no_other_its_lease(bench: Bench, held: list[Hold]) -> None:
    bad = held[1]
    writer = Refusing(bench.pool, bad.job_id)
    ledger = Ledger(writer, bench.worker_ids["w1"], TIMING, retention_s=3600.0)
    assert await ledger.heartbeat(held, draining=False) == set()
    after = await leases(bench)
    assert [after[hold.job_id][1] for hold in held] == [True, False, True, True]
    assert not any(hold.lost for hold in held)
