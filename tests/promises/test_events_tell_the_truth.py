"""A job's events come from any API process, whatever worker runs it: status first, outputs before the end, no lie."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from PIL import Image

from tests.support.service import Service, small_workflow, until

Heard = list[tuple[str, Any]]


class Stream:
    """One open event stream: what was heard of it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.heard: Heard = []
        self.comments = 0
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        text = ""
        async for chunk in self.answer.content.iter_any():
            *frames, text = (text + chunk.decode()).split("\n\n")
            for frame in frames:
                if frame.startswith(": "):
                    self.comments += 1
                    continue
                name, data = frame.split("\n")
                assert name.startswith("event: ")
                assert data.startswith("data: ")
                self.heard.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        assert text == ""

    def names(self) -> list[str]:
        return [name for name, _ in self.heard]

    def all(self, name: str) -> list[Any]:
        return [data for each, data in self.heard if each == name]

    async def has(self, name: str, **fields: Any) -> None:
        """Wait until such an event was heard."""

        def heard() -> bool:
            if self.task.done():
                self.task.result()
            return any(fields.items() <= data.items() for data in self.all(name))

        await until(heard, f"{name} {fields}")

    async def ended(self) -> Heard:
        await asyncio.wait_for(self.task, 30)
        return self.heard


@asynccontextmanager
async def stream(genflow: Service, job: UUID, url: str = "") -> AsyncIterator[Stream]:
    path = f"{url or genflow.url}/api/v2/jobs/{job}/events"
    async with genflow.http.get(path, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "no-cache" in answer.headers["Cache-Control"]
        opened = Stream(answer)
        yield opened
        opened.task.cancel()


def statuses(heard: Heard) -> list[str]:
    """The statuses in their order, each once in a row."""
    told = [data["status"] for name, data in heard if name == "status"]
    return [status for place, status in enumerate(told) if place == 0 or told[place - 1] != status]


async def test_from_another_api_process_while_its_worker_is_killed_and_replaced(genflow: Service) -> None:
    [server] = await genflow.simulate(seconds_per_step=0.3)
    await genflow.api()
    first = genflow.url
    await genflow.api()
    worker = await genflow.worker("first")
    _, portrait = await genflow.portrait()
    job = UUID(portrait["id"])
    async with stream(genflow, job, first) as watched, stream(genflow, job) as also:
        await server.wait("running", job)
        await watched.has("progress", current_node_class="KSampler")
        await worker.kill()
        await genflow.worker("second")
        heard = await watched.ended()
        assert statuses(await also.ended())[-2:] == ["running", "succeeded"]
    assert heard[0][0] == "status"
    assert heard[-1] == ("status", {"status": "succeeded", "queue_position": None})
    assert statuses(heard) == [each for each in ("queued", "running", "succeeded") if each in statuses(heard)]
    made = (await genflow.job(job))["outputs"]
    assert [output["id"] for output in watched.all("output")] == [output["id"] for output in made]
    assert watched.names().index("output") < len(heard) - 1
    values = [progress["value"] for progress in watched.all("progress")]
    assert values == sorted(values)
    [[text]] = await genflow.sql("select workflow from genflow.job_specs where job_id = %s", job)
    assert {progress["nodes_total"] for progress in watched.all("progress")} == {len(json.loads(text))}
    async with stream(genflow, job) as late:
        assert await late.ended() == [("status", {"status": "succeeded", "queue_position": None})]


async def test_previews_places_heartbeats_cancel_and_a_bound(genflow: Service) -> None:
    [server] = await genflow.simulate(seconds_per_step=0.8)
    await genflow.api(stream_heartbeat_s=0.3, max_streams=2)
    await server.knobs(hold=2, previews=True)
    await genflow.worker(slots=1)
    running = await genflow.submit_portrait()
    await server.wait("held", running)
    waiting = await genflow.submit()
    async with stream(genflow, waiting) as watched:
        await watched.has("status", status="queued", queue_position=1)
        await until(lambda: watched.comments >= 2, "it says that it is still there")
        async with stream(genflow, running) as other:
            status, body = await genflow.request("GET", f"/api/v2/jobs/{waiting}/events")
            assert (status, body["error"]["code"]) == (429, "too_many_streams")
            assert (await genflow.job(waiting))["status"] == "queued", "polls go on"
            assert await genflow.cancel(waiting) == "canceled"
            assert statuses(await watched.ended()) == ["queued", "canceled"]
            await server.knobs(hold=None, release=True)
            await other.has("preview")
            preview = other.all("preview")[0]
            assert preview["content_type"] == "image/jpeg"
            assert Image.open(io.BytesIO(base64.b64decode(preview["data_base64"]))).format == "JPEG"
            assert statuses(await other.ended())[-1] == "succeeded"
    for unknown in (uuid4(), "nope"):
        status, body = await genflow.request("GET", f"/api/v2/jobs/{unknown}/events")
        assert (status, body["error"]["code"]) == (404, "not_found")


async def test_nobody_watches_and_nothing_is_written(genflow: Service) -> None:
    await genflow.simulate()
    await genflow.api()
    await genflow.worker()
    job = await genflow.submit(small_workflow())
    await until(lambda: ended_unseen(genflow, job), "it ends")
    assert await genflow.sql("select job_id from genflow.job_live") == []


async def ended_unseen(genflow: Service, job: UUID) -> bool:
    """Whether the job is over, without a look through the API, which would count as watching."""
    [[state]] = await genflow.sql("select state from genflow.jobs where id = %s", job)
    return bool(state >= 10)
