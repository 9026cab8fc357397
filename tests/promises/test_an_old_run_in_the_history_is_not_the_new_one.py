"""Promise 7: the failed or timed-out run that a server still holds is not taken for the next, nor does it hide it."""

from __future__ import annotations

import signal

import pytest

from tests.support.service import Service


@pytest.mark.parametrize("old", [False, True], ids=["today", "0.3"])
@pytest.mark.parametrize("failpoints", ["", "submit.before_receipt=kill@2"], ids=["alive", "killed"])
async def test_after_a_failed_run(genflow: Service, failpoints: str, old: bool) -> None:
    """Out of memory first; the second run waits at its last node, and is followed there, also by another worker."""
    [server] = await genflow.simulate_together(
        1, script="oom,ok", seconds_per_megapixel=0, **({"old": True} if old else {})
    )
    await server.knobs(hold=2)  # the first run fails before its second node, the second one finds its first node cached
    await genflow.api(base_delay_ms=50)
    worker = await genflow.worker("first", failpoints=failpoints)
    job = await genflow.submit()
    await server.wait("held", job)
    if failpoints:
        assert await worker.died() == -signal.SIGKILL
        worker = await genflow.worker("second")
    story = await genflow.has(job, worker=worker.ready["worker"], status="running", state="held")
    assert story["attempts"][0]["code"] == "out_of_memory"
    assert len(story["submits"]) == 2
    await genflow.until_submit(job, 2, "executing")
    await server.knobs(release=True)

    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 2, "executions": 2, "interruptions": 0}
    story = await genflow.story(job)
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["failed", "succeeded"]
    assert [submit["state"] for submit in story["submits"]] == ["ended", "ended"]
    assert (story["attempts_spent"], story["resubmits"], story["doubled"]) == (2, 0, 0)
    assert (await server.books())["prompts"][str(job)]["files"] == [f"genflow/{job}/2/out_00001_.png"]


@pytest.mark.parametrize("old", [False, True], ids=["today", "0.3"])
async def test_after_a_run_that_was_stopped(genflow: Service, old: bool) -> None:
    """The first run hangs past the run timeout and is interrupted; its entry stands in the history."""
    [server] = await genflow.simulate_together(
        1, script="hang,ok", seconds_per_megapixel=0, **({"old": True} if old else {})
    )
    await genflow.api(base_delay_ms=50, timeout_s=1)
    await genflow.worker()
    job = await genflow.submit()
    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 2, "executions": 2, "interruptions": 1}
    story = await genflow.story(job)
    assert [attempt["code"] for attempt in story["attempts"]] == ["run_timeout", None]
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["failed", "succeeded"]
    assert [submit["stop_reason"] for submit in story["submits"]] == ["timeout", None]
    assert (await server.books())["prompts"][str(job)]["files"] == [f"genflow/{job}/2/out_00001_.png"]
