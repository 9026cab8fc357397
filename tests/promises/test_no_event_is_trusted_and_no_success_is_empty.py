"""Promise 11: sockets only hint, downloads are retried alone, and a success without its files is none."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.service import Service, Simulator, small_workflow, until

POLL_S = 0.5
"""The longest pause between two polls in these tests (`Service.worker`)."""
ONE_RUN = {"posts": 1, "executions": 1, "interruptions": 0}


async def test_a_silent_dropped_stalled_or_missing_socket_costs_neither_attempt_nor_run(genflow: Service) -> None:
    """Each run ends while its socket says nothing, and is found within a poll."""
    [sim] = await genflow.simulate()
    await genflow.api(silence_s=1)
    await genflow.worker(poll_ms=int(POLL_S * 1000))
    before_it_opens: list[dict[str, Any]] = [{"socket_silent": True}, {"socket_orphan": 1}]
    in_mid_run: list[dict[str, Any]] = [{"socket_drop": {"times": 1}}, {"socket_stall": {"seconds": 30}}]

    for number, knobs in enumerate(before_it_opens):
        await sim.knobs(hold=2, **knobs)
        job = await genflow.submit(small_workflow(color=number))
        await genflow.has(job, status="running")
        await _runs_longer_than_silence(genflow, job)  # nobody told anything, so nobody fell silent
        await sim.knobs(release=True, socket_silent=False)
        await _found_within_a_poll(genflow, sim, job)

    await sim.knobs(socket_refused=True)
    job = await genflow.submit(small_workflow(color=10))  # it ends in no time, and no socket ever opens
    await _found_within_a_poll(genflow, sim, job)
    await sim.knobs(socket_refused=0)

    for number, knobs in enumerate(in_mid_run, 20):
        await sim.knobs(hold=2)
        job = await genflow.submit(small_workflow(color=number))
        await sim.wait("held", job)
        await sim.knobs(release=True, **knobs)
        await _found_within_a_poll(genflow, sim, job)


async def _runs_longer_than_silence(genflow: Service, job: UUID) -> None:
    async def long() -> bool:
        rows = await genflow.sql(
            "select 1 from genflow.jobs where id = %s and executing_at < genflow.clock() - interval '2 s'", job
        )
        return rows != []

    await until(long, "two seconds of running")


async def _found_within_a_poll(genflow: Service, sim: Simulator, job: UUID) -> None:
    """The job succeeds soon after its run ended, by one run and one attempt."""
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["attempts_spent"], story["resubmits"], story["takeovers"]) == (1, 0, 0)
    assert await genflow.book(job) == ONE_RUN
    [run_ended_ms] = [end for prompt, _, end in await sim.get("/simulator/log") if prompt == str(job)]
    [(ended_ms,)] = await genflow.sql(
        "select extract(epoch from ended_at)::float8 * 1000 from genflow.jobs where id = %s", job
    )
    assert ended_ms - run_ended_ms < (POLL_S + 2) * 1000


async def test_a_failing_download_costs_no_run(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await sim.knobs(view_fail=2, view_truncated=1)
    await genflow.api(attempts=1)
    await genflow.worker()
    job = await genflow.submit()
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["failed_downloads"], story["attempts_spent"], story["resubmits"]) == (3, 1, 0)
    assert await genflow.book(job) == ONE_RUN


async def test_a_success_without_its_files_gets_one_forced_run_and_never_succeeds_empty(genflow: Service) -> None:
    """No outputs, a file of 0 bytes, a file that is gone, a cached run whose file was deleted."""
    [sim] = await genflow.simulate()
    await genflow.api(attempts=3)
    await genflow.worker()
    for number, fault in enumerate(("empty_outputs", "view_empty", "view_missing", "cached_without_file")):
        await sim.knobs(**{fault: 1})
        once = await genflow.submit(small_workflow(color=number))
        await genflow.succeeded(once)
        assert await genflow.book(once) == {"posts": 2, "executions": 2, "interruptions": 0}, fault
        story = await genflow.story(once)
        assert [(each["outcome"], each["code"]) for each in story["attempts"]] == [
            ("failed", "output_gone"),
            ("succeeded", None),
        ]

        await sim.knobs(**{fault: True})
        always = await genflow.submit(small_workflow(color=number + 10))
        ended = await genflow.ended(always)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "output_unavailable"), fault
        assert ended["outputs"] == []
        assert await genflow.book(always) == {"posts": 2, "executions": 2, "interruptions": 0}, fault
        await sim.knobs(**{fault: 0})


@pytest.mark.parametrize("forgotten", ["its entry", "its place in the queue"])
async def test_a_forgotten_prompt_is_run_again_and_its_server_distrusted(genflow: Service, forgotten: str) -> None:
    """Somebody clears the history after the run, or the queue before it, while nobody looks; the server lives on."""
    here, there = await genflow.simulate_together(2)
    await here.knobs(hold=2, socket_refused=True)
    await genflow.api()
    worker = await genflow.worker(servers=[here], quarantine_s=600)
    blocking = await genflow.submit()
    await here.wait("held", blocking)
    job = await genflow.submit(small_workflow(color=1))
    await genflow.has(job, step="submit")
    if forgotten == "its entry":
        worker.freeze()
        await here.knobs(release=True)
        await here.wait("ended", job)
        await here.post("/history", {"delete": [str(job)]})
        worker.thaw()
    else:
        await here.post("/queue", {"delete": [str(job)]})
        await genflow.has(job, resubmits=1)
        await here.knobs(release=True)
    await genflow.succeeded(blocking)
    await genflow.worker("elsewhere", servers=[there])
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["resubmits"], story["attempts_spent"]) == (1, 1)
    assert [(submit["state"], submit["server"]) for submit in story["submits"]] == [
        ("lost", f"test/{here.name}"),
        ("ended", f"test/{there.name}"),
    ]
    [(state, reason)] = await genflow.sql(
        "select state, reason from genflow.servers where name = %s", f"test/{here.name}"
    )
    assert state == 2
    assert "queue was cleared" in reason
    assert (await genflow.book(blocking))["executions"] == 1
