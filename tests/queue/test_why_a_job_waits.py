"""A job that belongs to one server says why it waits: which server, since when, and the command that helps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest

from genflow.queue import Registry
from genflow.queue.servers import why_bound
from tests.queue.conftest import Bench

NAME = "pod-3/gpu0"


@pytest.fixture
async def bound(bench: Bench) -> UUID:
    """A job whose prompt is on a server, and that no worker holds."""
    server = await bench.server(NAME)
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.receipt(hold, intent.no, number=1.0, client_id=None)
    await ledger.release(hold)
    await probed(bench, server)
    return job


async def probed(bench: Bench, server: int, *, healthy: bool = True) -> None:
    registry = Registry(bench.writer, bench.worker_ids["w1"])
    await registry.probed(server, url="http://127.0.0.1:8188", healthy=healthy)


async def why(bench: Bench, job: UUID) -> str | None:
    story = await bench.queue.story(job)
    assert story is not None
    because: str | None = story["waits_because"]
    return because


async def test_on_a_server_that_is_well_there_is_nothing_to_say(bench: Bench, bound: UUID) -> None:
    assert await why(bench, bound) is None


async def test_a_lost_server_is_named_with_its_time_and_the_command(bench: Bench, bound: UUID) -> None:
    await bench.rows("update genflow.servers set last_seen_at = '2026-08-22 03:00:00+02' returning 1")
    await bench.rows("update genflow.worker_servers set seen_at = genflow.clock() - interval '2 minutes' returning 1")
    assert await why(bench, bound) == (
        f"its prompt or its files are on {NAME}, which no worker has seen since 2026-08-22 01:00:00 UTC: start that"
        f" server or its worker again, or give it up with: genflow servers forget {NAME}"
    )
    await bench.queue.servers.forget(NAME)
    assert await why(bench, bound) is None, "it goes to any server"


def test_a_server_that_nobody_ever_saw_has_no_time_and_every_time_is_utc() -> None:
    lost = {"server": NAME, "server_state": 1, "server_reason": None, "server_seen": False, "server_seen_at": None}
    assert "which no worker has seen yet: " in str(why_bound(lost))
    in_berlin = datetime(2026, 8, 22, 3, tzinfo=timezone(timedelta(hours=2)))
    assert "since 2026-08-22 01:00:00 UTC: " in str(why_bound(lost | {"server_seen_at": in_berlin}))


async def test_a_server_that_answers_no_probe_is_lost_too(bench: Bench, bound: UUID) -> None:
    [server] = await bench.rows("select id from genflow.servers")
    await probed(bench, server["id"], healthy=False)
    because = await why(bench, bound)
    assert because is not None
    assert because.endswith(f"genflow servers forget {NAME}")


async def test_a_server_that_takes_nothing_new_is_named_with_its_reason(bench: Bench, bound: UUID) -> None:
    await bench.queue.servers.drain(NAME, "drained by hand")
    assert await why(bench, bound) == (
        f"its prompt or its files are on {NAME}, which is draining (drained by hand): it ends there, nothing new does"
    )
    [server] = await bench.rows("select id from genflow.servers")
    await bench.queue.servers.resume(NAME)
    registry = Registry(bench.writer, bench.worker_ids["w1"])
    await registry.quarantine(server["id"], "CUDA fault", seconds=60, needs_run=True)
    because = await why(bench, bound)
    assert because is not None
    assert "quarantined (CUDA fault)" in because
