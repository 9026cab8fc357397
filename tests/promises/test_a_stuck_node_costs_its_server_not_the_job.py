"""A node that hangs and can't be interrupted: silence and run timeout are told apart, the server is left alone, the job
is done elsewhere; a cancel ends all the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import Service, small_workflow

LONG = 600


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"silence_s": 1, "timeout_s": LONG}, "silence_timeout"), ({"silence_s": LONG, "timeout_s": 1}, "run_timeout")],
    ids=["silence", "run"],
)
async def test_a_run_that_will_not_stop_is_abandoned_and_done_elsewhere(
    genflow: Service, limits: dict[str, Any], code: str
) -> None:
    stuck, other = await genflow.simulate_pair()
    await stuck.knobs(hold=2, interrupt_ignored=True)
    await genflow.api(jitter=False, base_delay_ms=100, **limits)
    await genflow.worker(stop_grace_s=1)
    job = await genflow.submit()
    await stuck.wait("held", job)
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert [(attempt["server"], attempt["outcome"], attempt["code"]) for attempt in story["attempts"]] == [
        ("test/s0", "failed", code), ("test/s1", "succeeded", None)
    ]  # fmt: skip
    assert [submit["state"] for submit in story["submits"]] == ["abandoned", "ended"]
    [(state, reason)] = await genflow.sql("select state, reason from genflow.servers where name = 'test/s0'")
    assert (state, reason) == (2, "a run would not stop")
    later = await genflow.submit(small_workflow(color=1))
    await genflow.succeeded(later)
    assert await stuck.count("posted", later) == 0
    assert await other.count("posted", later) == 1


async def test_a_cancel_of_a_run_that_will_not_stop_ends_canceled(genflow: Service) -> None:
    [stuck] = await genflow.simulate()
    await stuck.knobs(hold=2, interrupt_ignored=True)
    await genflow.api()
    await genflow.worker(stop_grace_s=1)
    job = await genflow.submit()
    await stuck.wait("held", job)
    assert await genflow.cancel(job) == "canceling"
    story = await genflow.canceled(job)
    assert [submit["state"] for submit in story["submits"]] == ["abandoned"]
    [(state,)] = await genflow.sql("select state from genflow.servers")
    assert state == 2, "the server gets nothing new while it may still run"
