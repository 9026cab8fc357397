"""Promise 5: ComfyUI drops its queue, or is away for long. The job goes on, and neither costs it an attempt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import LEASE_S, Service, small_workflow


async def test_the_same_id_is_queued_again_at_most_max_resubmits_times(genflow: Service) -> None:
    """What ran and what was pending comes back; a server that forgets for ever makes a dead letter."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api(max_resubmits=1)
    await genflow.worker()
    running = await genflow.submit()
    await sim.wait("held", running)
    pending = await genflow.submit(small_workflow(color=1))
    await sim.wait("posted", pending)
    await sim.knobs(restart=0)
    await sim.restarted()
    await sim.wait("held", count=2)
    await sim.wait("posted", running, count=2)
    await sim.wait("posted", pending, count=2)
    await sim.knobs(release=True)
    for job in (running, pending):
        await genflow.succeeded(job)
        story = await genflow.story(job)
        assert (story["resubmits"], story["attempts_spent"], story["takeovers"]) == (1, 1, 0)
        assert [submit["state"] for submit in story["submits"]] == ["lost", "ended"]
        assert [attempt["outcome"] for attempt in story["attempts"]] == ["succeeded"]
    assert await genflow.book(running) == {"posts": 2, "executions": 2, "interruptions": 0}

    await sim.knobs(hold=2)
    job = await genflow.submit(small_workflow(color=2))
    for restarts in (2, 3):
        await sim.wait("held", job, count=restarts - 1)
        await genflow.has(job, status="running")
        await sim.knobs(restart=0)
        await sim.restarted(restarts)
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "lost_too_often")
    story = await genflow.story(job)
    assert [submit["state"] for submit in story["submits"]] == ["lost", "lost"]
    assert await genflow.book(job) == {"posts": 2, "executions": 2, "interruptions": 0}


async def test_also_where_its_worker_died_with_it(genflow: Service) -> None:
    """The next worker never saw the boot that the prompt went to; a restart is no reason to distrust the server."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first")
    job = await genflow.submit()
    await sim.wait("held", job)
    await genflow.has(job, status="running")
    await first.kill()
    await sim.knobs(release=True, restart=0)
    await sim.restarted()
    await genflow.worker("second")
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["resubmits"], story["attempts_spent"], story["takeovers"]) == (1, 1, 1)
    assert [submit["state"] for submit in story["submits"]] == ["lost", "ended"]
    assert await genflow.sql("select state, reason from genflow.servers") == [(1, None)]


@pytest.mark.parametrize(
    ("away", "resubmits"),
    [({"restart": {"down_s": 3 * LEASE_S}}, 1), ({"freeze": 3 * LEASE_S}, 0)],
    ids=["its port is closed", "it takes calls and never answers"],
)
async def test_a_server_that_is_away_for_long_costs_no_attempt(
    genflow: Service, away: dict[str, Any], resubmits: int
) -> None:
    """What ran, what was pending there, what was queued and what comes meanwhile waits for it, three leases long."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api(attempts=1)
    worker = await genflow.worker()
    there = [await genflow.submit()]
    await sim.wait("held", there[0])
    await genflow.has(there[0], status="running")
    there.append(await genflow.submit(small_workflow(color=1)))
    await genflow.has(there[1], step="submit")
    queued = [await genflow.submit(small_workflow(color=2))]
    await sim.knobs(**away)
    queued.append(await genflow.submit(small_workflow(color=3)))
    if resubmits:
        await genflow.has(there[0], worker=None)  # nobody holds a job whose server is away
        await genflow.has(there[1], worker=None)
        await sim.restarted()
    await sim.knobs(release=True, hold=None)
    for job in (*there, *queued):
        await genflow.succeeded(job)
        story = await genflow.story(job)
        assert (story["attempts_spent"], story["takeovers"]) == (1, 0), story
        assert story["resubmits"] == (resubmits if job in there else 0)
        assert (await genflow.book(job))["posts"] == 1 + story["resubmits"]
    assert await genflow.book(there[0]) == {"posts": 1 + resubmits, "executions": 1 + resubmits, "interruptions": 0}
    assert worker.said("server_down")
