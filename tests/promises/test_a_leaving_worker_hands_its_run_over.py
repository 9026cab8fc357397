"""Graceful shutdown: no new work, a grace for what runs, then handed over or interrupted; a second signal ends it."""

from __future__ import annotations

import signal

from tests.support.service import Process, Service, small_workflow, until

PATIENT = 30.0
"""A lease that a test must not have to wait for: what goes on sooner was handed over."""


async def test_the_run_goes_on_and_another_worker_follows_it_at_once(genflow: Service) -> None:
    """SIGTERM with less grace than the run needs, one prompt running and one pending."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", grace_s=0.5, lease=PATIENT)
    running = await genflow.submit()
    await sim.wait("held", running)
    pending = await genflow.submit(small_workflow(color=1))
    for job in (running, pending):
        await genflow.has(job, step="submit")
    second = await genflow.worker("second", lease=PATIENT)
    assert await first.stop() == 0
    for job in (running, pending):
        story = await genflow.has(job, worker=second.ready["worker"], within_s=PATIENT / 2)
        assert (story["moved"], story["takeovers"]) == (1, 0)
    await sim.knobs(release=True)
    for job in (running, pending):
        await genflow.succeeded(job)
        story = await genflow.story(job)
        assert (story["attempts_spent"], story["moved"], story["takeovers"]) == (1, 1, 0)
        assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}


async def test_what_runs_gets_its_grace_and_nothing_new_is_begun(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    leaving = await genflow.worker("leaving", grace_s=60)
    running = await genflow.submit()
    await sim.wait("held", running)
    await _sees_its_end(genflow, leaving)
    assert leaving.said("SIGTERM: no new jobs, 60 s for the running ones")
    late = await genflow.submit(small_workflow(color=1))
    await sim.knobs(release=True)
    assert await leaving.died() == 0
    assert (await genflow.job(running))["status"] == "succeeded"
    assert (await genflow.story(running))["moved"] == 0
    assert (await genflow.story(late))["state"] == "queued"
    assert await sim.count("posted") == 1
    assert await genflow.sql("select 1 from genflow.workers") == [], "it took itself off the list"


async def test_an_interrupted_run_is_stopped_and_done_elsewhere(genflow: Service) -> None:
    """`--on-grace interrupt`, for a ComfyUI that dies in the same pod."""
    here, there = await genflow.simulate_together(2)
    await here.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", servers=[here], grace_s=0, on_grace="interrupt", lease=PATIENT)
    job = await genflow.submit()
    await here.wait("held", job)
    await genflow.has(job, status="running")
    await genflow.worker("second", servers=[there], lease=PATIENT)
    assert await first.stop() == 0
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["attempts_spent"], story["takeovers"], story["resubmits"]) == (1, 0, 0), "it cost no attempt"
    assert [(each["server"], each["stop_reason"]) for each in story["submits"]] == [
        (f"test/{here.name}", "shutdown"),
        (f"test/{there.name}", None),
    ]
    books = [(await sim.books())["prompts"][str(job)] for sim in (here, there)]
    assert [(book["posts"], book["executions"], book["interruptions"]) for book in books] == [(1, 1, 1), (1, 1, 0)]
    await here.holds_nothing()


async def test_a_prompt_in_the_air_is_waited_for(genflow: Service) -> None:
    """Its receipt is written before the worker goes, so that the next one need not doubt."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2, reply={"mode": "late", "seconds": 2})
    await genflow.api()
    first = await genflow.worker("first", grace_s=0, lease=PATIENT)
    job = await genflow.submit()
    await sim.wait("posted", job)
    assert await first.stop() == 0
    story = await genflow.story(job)
    assert (story["state"], story["moved"], story["takeovers"]) == ("queued", 1, 0)
    [submit] = story["submits"]
    assert (submit["state"], submit["number"]) == ("accepted", 0)
    await sim.knobs(release=True)
    await genflow.worker("second", lease=PATIENT)
    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}


async def test_a_second_signal_ends_it_at_once(genflow: Service) -> None:
    """Nothing is handed over: the lease runs out, and the run is followed all the same."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", grace_s=600)
    job = await genflow.submit()
    await sim.wait("held", job)
    await genflow.has(job, status="running")
    await _sees_its_end(genflow, first)
    first.handle.send_signal(signal.SIGINT)
    assert await first.died(within_s=10) == 1
    assert (await genflow.story(job))["state"] == "held"
    await genflow.worker("second")
    await genflow.has(job, takeovers=1)
    await sim.knobs(release=True)
    await genflow.succeeded(job)
    assert (await genflow.story(job))["moved"] == 0
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}


async def _sees_its_end(genflow: Service, worker: Process) -> None:
    """Send SIGTERM, and wait until the worker tells the fleet that it takes nothing new."""
    worker.handle.terminate()

    async def draining() -> bool:
        return await genflow.sql("select draining from genflow.workers") == [(True,)]

    await until(draining, f"{worker.name} drains")
