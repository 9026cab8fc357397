"""Those who are measured side by side: each makes a picture of a workflow on a simulated server of its own.

`picture` makes one, `pictures` many at once; both answer when each was stored, in seconds of the wall clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import aiohttp

from bench import bare
from bench.celery_way.side import CeleryClient
from tests.support.service import Service, Simulator

AT_ONCE = 2
"""Jobs that the bare script has under way: one runs, the next waits on the server, as with all others."""
POLL_S = 0.1
"""How often a client of the official proxy asks, as the Celery task does."""
LANES = 8
"""Submits at a time, where all jobs are given at once."""


class Contestant(Protocol):
    """One way to make pictures."""

    name: str
    server: Simulator

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """One picture; when it was stored."""

    async def pictures(self, workflows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Many, all given at once; when each was stored."""


async def in_lanes(lanes: int, things: Sequence[Any], act: Callable[[Any], Any]) -> list[Any]:
    """What `act` answers for each, at most so many at a time."""
    turns = asyncio.Semaphore(lanes)

    async def one(thing: Any) -> Any:
        async with turns:
            return await act(thing)

    return await asyncio.gather(*(one(thing) for thing in things))


class Bare:
    """A script: post, listen, read the history, fetch."""

    name = "bare script"

    def __init__(self, server: Simulator, folder: Path) -> None:
        self.server, self._folder = server, folder

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """See `Contestant`."""
        await bare.one_job(self.server.http, self.server.url, dict(workflow), None, self._folder)
        return time.time()

    async def pictures(self, workflows: Sequence[Mapping[str, Any]]) -> list[float]:
        """See `Contestant`."""
        return await in_lanes(AT_ONCE, workflows, self.picture)


class Genflow:
    """The service: its API, one worker."""

    name = "genflow"

    def __init__(self, server: Simulator, service: Service) -> None:
        self.server, self._service = server, service

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """See `Contestant`."""
        [when] = await self.pictures([workflow])
        return when

    async def pictures(self, workflows: Sequence[Mapping[str, Any]]) -> list[float]:
        """See `Contestant`."""
        jobs = await in_lanes(LANES, workflows, self._service.submit)
        return await in_lanes(LANES, jobs, self._stored)

    async def _stored(self, job: Any) -> float:
        while True:
            status, story = await self._service.request("GET", f"/genflow/v1/jobs/{job}?wait=30")
            if status != 200 or story["status"] in ("failed", "canceled", "expired"):
                raise SystemExit(f"genflow answered {status}: {story}")
            if story["status"] == "succeeded":
                return datetime.fromisoformat(story["completed_at"]).timestamp()


class Proxy:
    """comfy-api-proxy, the official server for one ComfyUI, and a client that polls it and stores the picture."""

    name = "comfy-api-proxy"

    def __init__(self, server: Simulator, url: str, http: aiohttp.ClientSession, folder: Path) -> None:
        self.server, self._url, self._http, self._folder = server, url, http, folder

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """See `Contestant`."""
        return await self._stored(await self._submit(workflow))

    async def pictures(self, workflows: Sequence[Mapping[str, Any]]) -> list[float]:
        """See `Contestant`."""
        jobs = await in_lanes(LANES, workflows, self._submit)
        return await in_lanes(LANES, jobs, self._stored)

    async def _submit(self, workflow: Mapping[str, Any]) -> str:
        async with self._http.post(f"{self._url}/api/v2/jobs", json={"workflow": workflow}) as answer:
            body = await answer.json()
            if answer.status != 201:
                raise SystemExit(f"comfy-api-proxy answered {answer.status}: {body}")
            job: str = body["id"]
            return job

    async def _stored(self, job: str) -> float:
        """Once it is stored. An end that is none (bench/false_ends.py) is asked again."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            async with self._http.get(f"{self._url}/api/v2/jobs/{job}") as answer:
                body = await answer.json()
            if body.get("status") == "succeeded" and body["outputs"]:
                for number, output in enumerate(body["outputs"]):
                    async with self._http.get(output["url"]) as answer:
                        data = await answer.read()
                    await asyncio.to_thread(bare.store, self._folder / f"proxy-{job}-{number}", data)
                return time.time()
            await asyncio.sleep(POLL_S)
        raise SystemExit(f"comfy-api-proxy never finished {job}: {body}")


class OldWay:
    """A Celery worker over RabbitMQ (bench/celery_way)."""

    name = "Celery + RabbitMQ"

    def __init__(self, server: Simulator, client: CeleryClient) -> None:
        self.server, self._client = server, client

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """See `Contestant`."""
        return await self._client.picture(workflow)

    async def pictures(self, workflows: Sequence[Mapping[str, Any]]) -> list[float]:
        """See `Contestant`."""
        jobs = [str(uuid4()) for _ in workflows]
        for job, workflow in zip(jobs, workflows, strict=True):
            if not await asyncio.to_thread(self._client.send, job, workflow):
                raise SystemExit("the broker took no task")
        return [await self._client.stored(job, 120) for job in jobs]
