"""Which server a queued job goes to: what it needs, where it failed before, and what else is there."""

from __future__ import annotations

from uuid import uuid4

from genflow.failures import failure
from genflow.jobs import State
from tests.queue.conftest import Bench


async def fails_on(
    bench: Bench, server: int, *, avoid: bool = False, min_vram: int | None = None, code: str = "run_timeout"
) -> None:
    """One attempt of the next job fails on this server, and the job is queued again."""
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.end_attempt(
        hold, state=State.QUEUED, no=intent.no, failure=failure(code, "x"), avoid=avoid, min_vram=min_vram
    )


async def test_what_a_retry_avoids_is_remembered_until_something_worse_is_known(bench: Bench) -> None:
    small, other = await bench.server("small"), await bench.server("other")
    job = await bench.enqueue()
    await fails_on(bench, small, avoid=True, min_vram=8_000)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (small, 8_000)
    await fails_on(bench, other)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (small, 8_000), "a plain failure says nothing of the server"
    await fails_on(bench, other, avoid=True, min_vram=4_000)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (other, 8_000)
