"""Promise 4: whatever becomes of a POST's reply, one run; while a server can't be asked, nothing is posted."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.service import Service

LATE_S = 1.6
"""Later than a POST waits for its reply (lease / 3), sooner than an unknown prompt is believed unknown (a lease)."""

QUEUED = [("lost", True), ("late", True), ("late", False), ("html", True), ("502", True), ("500", True)]
"""Replies behind which the prompt is queued, sooner or later; `late` and not queued means that it arrives late."""

NOT_QUEUED = [("lost", False), ("html", False), ("502", False), ("500", False)]


def reply(mode: str, queued: bool) -> dict[str, Any]:
    return {"mode": mode, "queued": queued, "seconds": LATE_S, "times": 1}


async def test_every_doubtful_reply(genflow: Service) -> None:
    """Each server spoils its first reply in a way of its own; ten jobs meet them."""
    ways = QUEUED + NOT_QUEUED
    servers = await genflow.simulate_together(len(ways), seconds_per_megapixel=0)
    for server, way in zip(servers, ways, strict=True):
        await server.knobs(reply=reply(*way), hold=2)
    await genflow.api(base_delay_ms=50)
    await genflow.worker(slots=1)
    jobs = [await genflow.submit() for _ in ways]
    await asyncio.gather(*(server.wait("held") for server in servers))  # so each of them was met
    for server in servers:
        await server.knobs(release=True)
    await asyncio.gather(*(genflow.succeeded(job) for job in jobs))

    books = {job: await genflow.book(job) for job in jobs}
    assert list(books.values()) == [{"posts": 1, "executions": 1, "interruptions": 0}] * len(jobs)
    for server, way in zip(servers, ways, strict=True):
        assert (await server.get("/simulator/knobs"))["reply"] is None, f"{way} was met"
    met = {f"test/{server.name}": way for server, way in zip(servers, ways, strict=True)}
    given_up = 0
    for story in [await genflow.story(job) for job in jobs]:
        *earlier, last = story["submits"]
        assert all(met[submit["server"]] in NOT_QUEUED for submit in earlier), story
        assert last["state"] == "ended"
        assert story["attempts_spent"] == len(story["submits"]), "a doubt that ended unknown is an attempt"
        assert (story["takeovers"], story["resubmits"], story["doubled"]) == (0, 0, 0)
        given_up += len(earlier)
    assert given_up == len(NOT_QUEUED)


@pytest.mark.parametrize("queued", [True, False], ids=["queued", "not queued"])
async def test_nothing_is_posted_while_the_server_cannot_be_asked(genflow: Service, queued: bool) -> None:
    """Nor on the other server, which is idle all the time; far longer than an unknown prompt is believed unknown."""
    await genflow.simulate_pair(seconds_per_megapixel=0)
    for server in genflow.simulators:
        await server.knobs(reply=reply("lost", queued))
    await genflow.api(base_delay_ms=50)
    worker = await genflow.worker(failpoints="submit.before_receipt=freeze")
    job = await genflow.submit()
    await worker.frozen()
    name = (await genflow.story(job))["server"]
    [asked] = [server for server in genflow.simulators if f"test/{server.name}" == name]
    [other] = [server for server in genflow.simulators if server is not asked]
    await other.knobs(reply=None)
    mute_s = 8.0
    mute_until = time.time() + mute_s
    await asked.knobs(freeze={"seconds": mute_s})
    worker.thaw()

    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    assert (await genflow.story(job))["attempts_spent"] == 1, "the doubt was carried on, not spent"
    if queued:
        assert await other.count("posted") == 0
    else:
        runs = await asked.get("/simulator/log") + await other.get("/simulator/log")
        [[_, began_ms, _]] = runs
        assert began_ms / 1000 >= mute_until - 0.1


async def test_a_doubt_that_a_restart_covers_up_is_a_counted_resubmit(genflow: Service) -> None:
    """The prompt was queued and began to run, its reply was lost, and then its server forgot it."""
    [sim] = await genflow.simulate(seconds_per_megapixel=0)
    await sim.knobs(reply=reply("lost", True), hold=2)
    await genflow.api(base_delay_ms=50)
    worker = await genflow.worker(failpoints="submit.before_receipt=freeze")
    job = await genflow.submit()
    await worker.frozen()
    await sim.wait("held", job)
    await sim.knobs(hold=None, restart={"down_s": 0})
    await sim.restarted()
    worker.thaw()
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert [submit["state"] for submit in story["submits"]] == ["lost", "ended"], story
    assert (story["resubmits"], story["attempts_spent"], story["doubled"]) == (1, 1, 0)
    assert (await genflow.book(job))["executions"] == 2, "both runs are accounted for"
