"""A distrusted server's trial: one worker is told to have it run, and none while a prompt of ours is open there."""

from __future__ import annotations

from uuid import UUID, uuid4

from genflow.queue import Registry
from tests.queue.conftest import Bench

REASON = "CUDA fault"


async def asks(bench: Bench, name: str, server: int, *, healthy: bool = True, boot: UUID | None = None) -> bool:
    """Whether this worker's probe is told to begin a trial."""
    await bench.worker(name)
    registry = Registry(bench.writer, bench.worker_ids[name])
    url = "http://127.0.0.1:8188"
    return (await registry.probed(server, url=url, healthy=healthy, boot=boot, trial_s=60.0)).trial


async def distrusted(bench: Bench, server: int, *, seconds: float = 0.0) -> None:
    await bench.worker("w1")
    registry = Registry(bench.writer, bench.worker_ids["w1"])
    await registry.quarantine(server, REASON, seconds=seconds, needs_run=True)


async def test_one_worker_is_told_and_the_others_wait(bench: Bench) -> None:
    server = await bench.server()
    await distrusted(bench, server)
    told = [await asks(bench, name, server) for name in ("w1", "w2", "w1", "w2")]
    assert told == [True, False, False, False]
    await bench.rows("update genflow.servers set quarantined_until = genflow.clock() returning 1")
    assert await asks(bench, "w2", server), "the first one died with its trial: another has its turn"


async def test_nobody_is_told_before_its_time_or_while_it_is_away(bench: Bench) -> None:
    server = await bench.server()
    await distrusted(bench, server, seconds=600)
    assert not await asks(bench, "w1", server)
    await distrusted(bench, server)
    assert not await asks(bench, "w1", server, healthy=False)
    assert await asks(bench, "w2", server), "an unanswered probe takes nobody's turn"


async def test_a_new_boot_is_tried_at_once(bench: Bench) -> None:
    server = await bench.server()
    await asks(bench, "w1", server, boot=uuid4())
    await distrusted(bench, server, seconds=600)
    assert await asks(bench, "w1", server, boot=uuid4())


async def test_no_trial_stands_beside_an_open_prompt_of_ours(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.receipt(hold, intent.no, number=1.0, client_id=None)
    await distrusted(bench, server)
    assert not await asks(bench, "w1", server)
    await bench.rows("update genflow.submits set state = 14, ended_at = genflow.clock() returning 1")
    assert await asks(bench, "w1", server)
