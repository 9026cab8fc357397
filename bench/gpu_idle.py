"""How long the GPU idles under a backlog: 50 runs of 1 s on one server, beside a bare loop that keeps two queued.

Read from the simulator's own log: 1 − busy / (last end − first start).
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import aiohttp

from bench import bare, figures
from bench.levels import idle_share
from bench.place import place, verdict
from tests.support.service import Service, Simulator

JOBS = 50
RUN_S = 1.0


def workflow(number: int) -> dict[str, Any]:
    """A run of `RUN_S` seconds: one picture, scaled by the server's seconds per megapixel."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 512, "height": 512, "batch_size": 1, "color": number}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": f"idle{number}"}},
    }


async def run() -> bool:
    """Print both shares; whether genflow's is at most the bare loop's plus half a point."""
    print(f"gpu_idle: {JOBS} runs of {RUN_S:g} s in the queue of one server")
    async with place() as genflow:
        [sim] = await genflow.simulate(seconds_per_megapixel=RUN_S / (512 * 512 / 1e6) / 2)
        theirs = await _idle_share(sim, _two_deep(genflow, sim))
        await genflow.api()
        await genflow.worker(lease=30, log_level="warning")
        ours = await _idle_share(sim, _backlog(genflow))
    rows = [["bare loop that keeps two prompts queued", f"{theirs:.2%}"], ["genflow (two slots)", f"{ours:.2%}"]]
    figures.table(["", "idle share"], rows)
    return verdict("points above the bare loop", (ours - theirs) * 100, 0.5)


async def _idle_share(sim: Simulator, work: Any) -> float:
    before = len(await sim.get("/simulator/log"))
    await work
    log = (await sim.get("/simulator/log"))[before:]
    if len(log) != JOBS:
        raise SystemExit(f"the server ran {len(log)} of {JOBS}")
    return idle_share(log)


async def _two_deep(genflow: Service, sim: Simulator) -> None:
    numbers = iter(range(JOBS))

    async def lane(http: aiohttp.ClientSession) -> None:
        client_id = uuid4().hex
        async with http.ws_connect(f"{sim.url}/ws", params={"clientId": client_id}, max_msg_size=0) as socket:
            for number in numbers:
                prompt_id = await bare.post(http, sim.url, workflow(number), client_id)
                await bare.ended(socket, prompt_id)
                await bare.fetch(http, sim.url, prompt_id, genflow.folder)

    await asyncio.gather(lane(genflow.http), lane(genflow.http))


async def _backlog(genflow: Service) -> None:
    jobs = [await genflow.submit(workflow(1_000 + number)) for number in range(JOBS)]
    for job in jobs:
        await genflow.succeeded(job, within_s=JOBS * RUN_S * 3)
