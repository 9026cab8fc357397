"""Promise 2: killed in any of the four steps, before, in and after, at every failpoint: one run, no step repeated."""

from __future__ import annotations

import signal
from uuid import UUID

import aiohttp
import pytest

from genflow.failpoints import FAILPOINTS
from tests.support.service import ON_THE_WAY, Process, Service, Simulator

OF_THE_API = [name for name in FAILPOINTS if name.startswith("enqueue.")]

ASKED_AGAIN = {"upload.after": "uploads", "download.in": "views", "download.before_commit": "views"}
"""Killed between doing a step and recording it, the step is done again: with the same bytes, under the same name."""

NOTHING_SENT = ["submit.after_intent", "submit.after_ask", "submit.after_check"]
"""A submit that was written down and never left is closed, and another one takes its place."""

QUICK = {"seconds_per_step": 0.01, "seconds_per_megapixel": 0}


async def held_by_a_server(genflow: Service, job: UUID) -> Simulator:
    """The server that runs the job and waits before its second node."""
    story = await genflow.has(job, status="running")
    [server] = [each for each in genflow.simulators if story["server"] == f"test/{each.name}"]
    await server.wait("held", job)
    return server


async def bring_about(name: str, genflow: Service, first: Process, job: UUID) -> None:
    """Let the worker come to a failpoint that lies on no job's usual way."""
    if name == "release.before":
        await held_by_a_server(genflow, job)
        first.handle.send_signal(signal.SIGTERM)
    if name == "cancel.before_stop":
        await held_by_a_server(genflow, job)
        status, body = await genflow.request("POST", f"/api/v2/jobs/{job}/cancel")
        assert (status, body["status"]) == (200, "canceling")


async def uploads(genflow: Service) -> int:
    return sum([await simulator.count("upload") for simulator in genflow.simulators])


@pytest.mark.parametrize("name", ON_THE_WAY)
async def test_after_a_kill_of_the_worker(genflow: Service, name: str) -> None:
    await genflow.simulate_pair(**QUICK)
    if name in ("release.before", "cancel.before_stop"):
        for simulator in genflow.simulators:
            await simulator.knobs(hold=2)
    await genflow.api()
    first = await genflow.worker("first", failpoints=f"{name}=kill", grace_s=0)
    markers = await uploads(genflow)  # one boot marker a server, and never again
    job = await genflow.submit_portrait()
    await bring_about(name, genflow, first, job)
    assert await first.died() == -signal.SIGKILL
    canceled = name == "cancel.before_stop"
    if not canceled:
        for simulator in genflow.simulators:
            await simulator.knobs(release=True)
    await genflow.worker("second")

    ended = await genflow.ended(job)
    assert ended["status"] == ("canceled" if canceled else "succeeded"), f"{ended}\n{genflow.last_words()}"
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": int(canceled)}
    story = await genflow.story(job)
    assert story["attempts_spent"] == (0 if canceled else 1)
    assert story["resubmits"] == story["doubled"] == 0
    assert len(story["submits"]) == (2 if name in NOTHING_SENT else 1)
    assert story["takeovers"] == (0 if name == "download.after_commit" or canceled else 1)

    again = ASKED_AGAIN.get(name)
    assert await uploads(genflow) - markers == (2 if again == "uploads" else 1)
    photos = [file for file in genflow.files("servers") if f"input/genflow/{job}/" in file]
    assert len(photos) == 1, "one photo on one server, sent twice or not"
    assert len(await genflow.sql("select 1 from genflow.server_files")) == 1

    views = sum([await simulator.count("view", job) for simulator in genflow.simulators])
    assert views == (0 if canceled else 2 if again == "views" else 1)
    outputs = await genflow.sql("select id, blob_hash from genflow.assets where kind = 'output' and job_id = %s", job)
    assert len(outputs) == len(ended["outputs"]) == (0 if canceled else 1)
    blobs = [file for file in genflow.files("blobs") if not file.startswith("incoming/")]
    assert len(blobs) == 1 + len(outputs), "the photo and the picture, each stored once"


@pytest.mark.parametrize("name", OF_THE_API)
async def test_after_a_kill_of_the_api(genflow: Service, name: str) -> None:
    """The client can't know whether its job was taken, asks again under the same key, and has one job."""
    await genflow.simulate_pair(**QUICK)
    first = await genflow.api(failpoints=f"{name}=kill")
    with pytest.raises(aiohttp.ClientError):
        await genflow.portrait(key="a key of this job")
    assert await first.died() == -signal.SIGKILL
    await genflow.api()
    status, body = await genflow.portrait(key="a key of this job")
    if name == "enqueue.before_commit":
        assert status == 201, body
        job = UUID(body["id"])
    else:
        assert status == 422, body
        assert body["error"]["code"] == "idempotency_key_reuse"
        job = UUID(body["error"]["details"]["job_id"])
    await genflow.worker("worker")
    await genflow.succeeded(job)
    assert await genflow.sql("select id from genflow.jobs") == [(job,)]
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
