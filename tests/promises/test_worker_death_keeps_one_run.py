"""Promise 1: a worker dies right after queueing; nobody touches the job until its lease is over, then it is resumed."""

from __future__ import annotations

from tests.support.service import LEASE_S, Service


async def test_the_prompt_reaches_comfyui_exactly_once(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await sim.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", failpoints="submit.before_receipt=kill")
    job = await genflow.submit()
    await first.died()
    await sim.wait("held", job)
    [(lease_left_s, token)] = await genflow.sql(
        "select extract(epoch from lease_until - clock_timestamp())::float8, token from genflow.jobs where id = %s", job
    )
    assert lease_left_s > 0
    second = await genflow.worker("second")
    held = await genflow.story(job)
    if await genflow.sql("select 1 from genflow.jobs where id = %s and lease_until > clock_timestamp()", job):
        assert held["token"] == token, "nobody touches a job whose lease is valid"
    story = await genflow.has(job, takeovers=1)
    [(waited_s,)] = await genflow.sql(
        "select extract(epoch from clock_timestamp() - created_at)::float8 from genflow.jobs where id = %s", job
    )
    assert waited_s >= LEASE_S * 0.9
    assert story["worker"] in (None, second.ready["worker"])
    await sim.knobs(release=True, hold=None)
    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
