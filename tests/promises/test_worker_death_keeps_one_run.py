"""Promise 1: a worker dies right after queueing; nobody touches the job until its lease is over, then it is resumed."""

from __future__ import annotations

from tests.support.service import Service

LEASE_S = 6.0
"""Longer than a loaded machine takes to start the second worker: it is there, and waits."""


async def test_the_prompt_reaches_comfyui_exactly_once(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", failpoints="submit.before_receipt=kill", lease=LEASE_S)
    job = await genflow.submit()
    await first.died()
    await sim.wait("held", job)
    second = await genflow.worker("second", lease=LEASE_S)
    [(left_s, lease_until)] = await genflow.sql(
        "select extract(epoch from lease_until - clock_timestamp())::float8, lease_until"
        " from genflow.jobs where id = %s",
        job,
    )
    assert left_s > 0, "the second worker was there while the lease was valid"
    story = await genflow.has(job, takeovers=1)
    [(since_s,)] = await genflow.sql("select extract(epoch from clock_timestamp() - %s)::float8", lease_until)
    assert since_s > 0, "nobody touches a job whose lease is valid"
    assert story["worker"] in (None, second.ready["worker"])
    await sim.knobs(release=True, hold=None)
    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
