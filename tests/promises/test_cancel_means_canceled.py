"""Promise 8: cancel at any moment. The job ends canceled, no neighbour is harmed, and no late result overwrites."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.service import Service, small_workflow, until

CANCELS = ("canceling", "canceled")
"""What a cancel shows of a job with a living holder: it may be over before the answer is written."""
AWAY_S = 3.0
PATIENT = 30.0
"""A lease that no frozen moment of a loaded machine outlasts."""


@pytest.mark.parametrize("server", [{}, {"old": True}], ids=["new server", "old server"])
async def test_wherever_it_stands_and_no_neighbour_is_harmed(genflow: Service, server: dict[str, bool]) -> None:
    """Queued, pending, running, twice, and after the end; on a 0.3 server by its `/queue` and `/interrupt`."""
    [sim] = await genflow.simulate(**server)
    await sim.knobs(hold=2)
    await genflow.api()
    await genflow.worker(slots=3)
    running = await genflow.submit()
    await sim.wait("held", running)
    pending, neighbour = [await genflow.submit(small_workflow(color=n)) for n in range(2)]
    await sim.wait("posted", pending)
    await sim.wait("posted", neighbour)
    queued = await genflow.submit(small_workflow(color=2))
    other = await sim.prompt_of_another_client()

    assert await genflow.cancel(queued) == "canceled", "nothing of it is out: canceled here and now"
    assert await genflow.cancel(pending) in CANCELS
    assert await genflow.cancel(pending) in CANCELS
    assert (await genflow.canceled(pending))["attempts_spent"] == 0
    assert await genflow.cancel(running) in CANCELS
    story = await genflow.canceled(running)
    assert (story["attempts_spent"], story["submits"][0]["stop_reason"]) == (0, "cancel")
    assert await genflow.cancel(running) == "canceled"

    await sim.wait("held", neighbour)
    await sim.knobs(release=True)
    await genflow.succeeded(neighbour)
    await sim.ran_to_its_end(other)
    assert await genflow.cancel(neighbour) == "succeeded", "what ended stays as it is"
    assert (await genflow.job(neighbour))["outputs"]

    assert await genflow.book(queued) == {"posts": 0, "executions": 0, "interruptions": 0}
    assert await genflow.book(pending) == {"posts": 1, "executions": 0, "interruptions": 0}
    assert await genflow.book(running) == {"posts": 1, "executions": 1, "interruptions": 1}
    assert await genflow.book(neighbour) == {"posts": 1, "executions": 1, "interruptions": 0}


@pytest.mark.parametrize(
    ("failpoint", "shown", "posts"),
    [
        ("submit.before_intent", "canceled", (0,)),
        ("submit.after_intent", "canceling", (0, 1)),
        ("submit.after_check", "canceling", (1,)),
        ("wait.before_commit", "canceling", (1,)),
        ("download.before_commit", "canceled", (1,)),
    ],
)
async def test_while_its_worker_stands_in_the_middle_of_a_step(
    genflow: Service, failpoint: str, shown: str, posts: tuple[int, ...]
) -> None:
    """The intent decides: before it, and after the run, the job is canceled at once; in between its holder stops it."""
    [sim] = await genflow.simulate()
    before_the_run = failpoint.startswith("submit.")
    await sim.knobs(hold=1 if before_the_run else None)
    await genflow.api(lease=PATIENT)
    worker = await genflow.worker(failpoints=f"{failpoint}=freeze", lease=PATIENT)
    job = await genflow.submit()
    await worker.frozen()
    assert await genflow.cancel(job) == shown
    assert (await genflow.job(job))["status"] == shown
    worker.thaw()
    await genflow.canceled(job)
    await sim.knobs(release=True)
    await genflow.succeeded(await genflow.submit(small_workflow(color=1)))  # the worker and the server go on
    await sim.holds_nothing()
    await genflow.canceled(job)  # nothing that came late changed it
    book = await genflow.book(job)
    assert book["posts"] in posts
    assert book["interruptions"] == (book["executions"] if before_the_run else 0), "what had begun was stopped"


@pytest.mark.parametrize(
    ("failpoint", "runs"), [("submit.after_intent", 0), ("submit.after_receipt", 1), ("wait.running", 1)]
)
async def test_while_its_worker_is_dead(genflow: Service, failpoint: str, runs: int) -> None:
    """The next holder carries the cancel out, and that costs neither an attempt nor a takeover."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", failpoints=f"{failpoint}=kill")
    job = await genflow.submit()
    assert await first.died() == -signal.SIGKILL
    if runs:
        await sim.wait("held", job)
    assert await genflow.cancel(job) == "canceling"
    await genflow.worker("second")
    story = await genflow.canceled(job)
    assert (story["attempts_spent"], story["takeovers"]) == (0, 0)
    assert await genflow.book(job) == {"posts": runs, "executions": runs, "interruptions": runs}
    await sim.holds_nothing()


async def test_while_its_server_is_away(genflow: Service) -> None:
    """The job is canceled once its server was asked, not sooner: nobody knows what runs there."""
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    await genflow.worker()
    job = await genflow.submit()
    await sim.wait("held", job)
    await genflow.has(job, status="running")
    away_since = time.time()
    await sim.knobs(restart={"down_s": AWAY_S})
    assert await genflow.cancel(job) == "canceling"
    assert (await genflow.canceled(job))["resubmits"] == 0
    [(ended,)] = await genflow.sql("select extract(epoch from ended_at)::float8 from genflow.jobs where id = %s", job)
    assert ended - away_since >= AWAY_S
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}, "a canceled job is not retried"


async def test_after_a_minute_without_its_server(genflow: Service) -> None:
    """Nobody sees the servers any more: the jobs are canceled all the same, and stopped when their servers are back."""
    simulators = await genflow.simulate_together(2)
    for sim in simulators:
        await sim.knobs(hold=2)
    await genflow.api()
    dead, left = [
        await genflow.worker(name, servers=[sim], grace_s=0)
        for name, sim in zip(("dead", "left"), simulators, strict=True)
    ]
    jobs = [await genflow.submit(small_workflow(color=n)) for n in range(4)]
    for sim in simulators:
        await sim.wait("held")
        await sim.wait("posted", count=2)
    await until(lambda: _all_accepted(genflow), "every receipt is written")
    await dead.kill()
    assert await left.stop() == 0
    assert {await genflow.cancel(job) for job in jobs} == {"canceling"}
    await genflow.sql("update genflow.servers set last_seen_at = last_seen_at - interval '61 s'")
    await genflow.sql(
        "update genflow.jobs set cancel_at = cancel_at - interval '61 s', lease_until = lease_until - interval '61 s'"
    )
    for job in jobs:
        story = await genflow.canceled(job)
        assert [submit["state"] for submit in story["submits"]] == ["abandoned"]
    await genflow.worker("back")
    for sim in simulators:
        await sim.wait("interrupted")
    await until(lambda: _no_chore(genflow), "all chores are done")
    for sim in simulators:
        await sim.holds_nothing()
    for job in jobs:
        book = await genflow.book(job)
        assert book == {"posts": 1, "executions": book["executions"], "interruptions": book["executions"]}


async def _all_accepted(genflow: Service) -> bool:
    return await genflow.sql("select count(*) from genflow.submits where state in (2, 3)") == [(4,)]


async def _no_chore(genflow: Service) -> bool:
    return await genflow.sql("select 1 from genflow.chores") == []
