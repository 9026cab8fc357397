"""What a poll costs on a server whose queue others have filled: bytes per poll and job, with 200 pending prompts of
theirs.

A proxy between worker and server counts what each route answers. Beside it: what reading `/queue` once would have cost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from bench import figures
from bench.place import place, verdict
from tests.support.service import Simulator, small_workflow

OTHERS, JOBS, HELD_S = 200, 5, 12.0


class Meter:
    """Counts calls and answered bytes by route."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def add(self, method: str, path: str, size: int) -> None:
        """One answer of `size` bytes. Ids are left out of the route."""
        route = f"{method} " + "/".join("ID" if len(part) == 36 else part for part in path.split("/"))
        self.calls[route] += 1
        self.bytes[route] += size


async def run() -> bool:
    """Print bytes per poll; whether it is at most 2 kB and /queue is left alone."""
    print(f"polling: {JOBS} jobs of {HELD_S:g} s on a server with {OTHERS} pending prompts of others")
    meter = Meter()
    async with place() as genflow:
        [sim] = await genflow.simulate(busy=OTHERS)
        async with _proxy(sim, meter) as url:
            watched = Simulator(sim.name, url, sim.process, sim.http)
            await genflow.api()
            await genflow.worker(servers=[watched], lease=30, log_level="warning", max_queue=OTHERS + 1, slots=JOBS)
            await sim.knobs(hold=2)
            jobs = [await genflow.submit(small_workflow(color=number)) for number in range(JOBS)]
            await sim.wait("held", timeout=60)
            await asyncio.sleep(HELD_S)
            await sim.knobs(hold=None, release=True)
            for job in jobs:
                await genflow.succeeded(job)
        async with genflow.http.get(f"{sim.url}/queue") as reply:
            queue = len(await reply.read())
    polls = "GET /api/jobs/ID"
    each = meter.bytes[polls] / max(1, meter.calls[polls])
    reads = sum(count for route, count in meter.calls.items() if route.endswith((" /queue", " /api/queue")))
    figures.table(
        ["", ""],
        [
            [f"bytes per poll and job ({meter.calls[polls]} polls)", f"{each:.0f}"],
            [f"reads of `/queue` ({queue:,} bytes each)", f"{reads}"],
        ],
    )
    return verdict("kB per poll and job", each / 1000, 2.0) and reads == 0 and meter.calls[polls] >= JOBS


@asynccontextmanager
async def _proxy(sim: Simulator, meter: Meter) -> AsyncIterator[str]:
    """A way to the server on which every answer is counted. It carries no WebSocket: the worker polls."""

    async def forward(request: web.Request) -> web.Response:
        if request.path.endswith("/ws"):
            return web.Response(status=404)
        kept = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with sim.http.request(
            request.method, sim.url + request.path_qs, data=await request.read(), headers=kept
        ) as reply:
            body = await reply.read()
            meter.add(request.method, request.path, len(body))
            kind = {"Content-Type": reply.headers.get("Content-Type", "text/plain"), "Server": reply.headers["Server"]}
            return web.Response(status=reply.status, body=body, headers=kind)

    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
