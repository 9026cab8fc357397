"""Short jobs polled tightly: how often a client sees an end that is none, here and at comfy-api-proxy, the official
server for one ComfyUI, on the same simulated server. Then the official SDK's `run()`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import aiohttp
from comfy_sdk import AsyncComfy
from comfy_sdk.exceptions import ComfyError

from bench import figures
from bench.place import place, verdict
from tests.support.service import TERMINAL, small_workflow, until

JOBS, AT_ONCE = 300, 30


async def run() -> bool:
    """Print both counts; whether genflow shows no false end and the SDK's `run()` always succeeds."""
    print(
        f"false_ends: {JOBS} short jobs polled without pause, {AT_ONCE} at a time; then the SDK's run(), {JOBS} times"
    )
    async with place() as genflow:
        [sim] = await genflow.simulate(seconds_per_megapixel=0)
        async with official_proxy(sim.url, genflow.folder) as proxy:
            theirs = await _ends(genflow.http, proxy)
            their_runs = await _runs(proxy)
        await genflow.api()
        await genflow.worker(lease=30, log_level="warning")
        ours = await _ends(genflow.http, genflow.url)
        our_runs = await _runs(genflow.url)
    rows = [("comfy-api-proxy", theirs, their_runs), ("genflow", ours, our_runs)]
    figures.table(
        ["runs of", "first end seen: `succeeded`", "an end that was none", "`run()` succeeded"],
        [[name, str(ends["succeeded"]), str(JOBS - ends["succeeded"]), str(runs)] for name, ends, runs in rows],
    )
    false = JOBS - ours["succeeded"]
    return all([verdict("false ends", false, 0), verdict("SDK run() that raised", JOBS - our_runs, 0)])


async def _ends(http: aiohttp.ClientSession, url: str) -> Counter[str]:
    """The first terminal status that each job's client saw; "error" where a poll was refused."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with turns:
            async with http.post(f"{url}/api/v2/jobs", json={"workflow": small_workflow(color=number)}) as answer:
                if answer.status != 201:
                    return f"submit {answer.status}"
                job = (await answer.json())["id"]
            while True:
                async with http.get(f"{url}/api/v2/jobs/{job}") as answer:
                    if answer.status != 200:
                        return f"poll {answer.status}"
                    status: str = (await answer.json())["status"]
                if status in TERMINAL:
                    return status

    return Counter(await asyncio.gather(*(one(number) for number in range(JOBS))))


async def _runs(url: str) -> int:
    """How many of the SDK's `run()` calls succeed."""
    os.environ["COMFY_BASE_URL"] = url
    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncComfy() as comfy:

        async def one(number: int) -> bool:
            async with turns:
                try:
                    await comfy.run(comfy.workflows.from_json(small_workflow(color=JOBS + number)))
                except ComfyError:
                    return False
                return True

        return sum(await asyncio.gather(*(one(number) for number in range(JOBS))))


@asynccontextmanager
async def official_proxy(comfyui: str, folder: Path) -> AsyncIterator[str]:
    """comfy-api-proxy in front of that server, its state and its log in that folder; its address."""
    figures.ran_with("comfy-api-proxy", version("comfy-api-proxy"))
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = Path(sys.executable).parent / "comfy-api-proxy"
    state = ["--state-dir", str(folder / "proxy")]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [command, "run", "--comfyui", comfyui, "--port", str(port), *state], stdout=log, stderr=log
        )

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    try:
        await until(listens, "comfy-api-proxy answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
