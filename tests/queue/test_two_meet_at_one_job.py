"""Two statements that want one job's row at the same instant: the second sees what the first one committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from genflow.failures import failure
from genflow.jobs import State, SubmitState
from genflow.queue import Ledger
from genflow.queue.statements import statement
from genflow.queue.writer import Row, written_alone
from tests.queue.conftest import ENTRY, TIMING, Bench, waits_for_a_lock


class InTransaction:
    """A writer whose statements are committed only when the test says so."""

    outages = 0

    def __init__(self, connection: psycopg.AsyncConnection[Row]) -> None:
        self._connection = connection

    async def write(self, name: str, params: Any) -> list[Row]:
        cursor = await self._connection.execute(statement(name), params)
        return await cursor.fetchall()

    async def write_row(self, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
        return await written_alone(self, name, common, row)


@asynccontextmanager
async def uncommitted(bench: Bench, worker: UUID) -> AsyncIterator[Ledger]:
    """A worker's ledger whose writes are committed at the end of the block."""
    async with bench.pool.connection() as connection, connection.transaction():
        yield Ledger(InTransaction(connection), worker, TIMING, retention_s=3600.0)


async def test_a_cancel_that_meets_an_intent_leaves_the_prompt_to_its_holder(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    async with uncommitted(bench, hold.worker_id) as earlier:
        await earlier.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
        cancel = asyncio.create_task(bench.queue.cancel(job))
        await waits_for_a_lock(bench, "-- Cancel a job")
    assert await cancel
    row = await bench.row(job)
    assert (row["state"], row["token"]) == (State.HELD, hold.token), "or nobody could stop the prompt"
    assert row["cancel_at"] is not None
    assert await ledger.receipt(hold, 1, number=0.0, client_id="c")
    ended = await ledger.end_attempt(hold, state=State.CANCELED, no=1, submit_state=SubmitState.WITHDRAWN)
    assert ended is State.CANCELED
    assert await bench.rows("select 1 from genflow.submits where state < 10") == []


@pytest.mark.parametrize("ending", ["run", "attempt"])
async def test_a_cancel_that_meets_the_end_of_a_submit_is_done_at_once(bench: Bench, ending: str) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    async with uncommitted(bench, hold.worker_id) as earlier:
        if ending == "run":
            await earlier.run_ended(hold, 1, ENTRY)
        else:
            told = failure("run_timeout", "x")
            await earlier.end_attempt(hold, state=State.WAITING, no=1, failure=told, delay_s=3600.0)
        cancel = asyncio.create_task(bench.queue.cancel(job))
        await waits_for_a_lock(bench, "-- Cancel a job")
    assert await cancel
    row = await bench.row(job)
    assert (row["state"], row["server_id"]) == (State.CANCELED, None), "nothing is left to stop"
    assert row["ended_at"] is not None
