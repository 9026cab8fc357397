"""A file of 2 GB up through the API and down again: how far the process's memory grows over what it has when idle."""

from __future__ import annotations

import time

from bench import figures
from bench.place import place, verdict
from tests.support.big_files import down, up

SIZE = 2_000_000_000
BOUND_MB = 64.0


async def run() -> bool:
    """Print peak − idle memory of the API's process; whether it holds."""
    print(f"large_assets: {SIZE / 1e9:g} GB up and down through one API process")
    async with place() as genflow:
        api = await genflow.api()
        await genflow.request("GET", "/genflow/v1/jobs")  # what the first request of all loads is no file's
        idle = api.grown()
        began = time.monotonic()
        asset = await up(genflow, SIZE)
        sent = time.monotonic()
        whole = await down(genflow, asset["url"]) == (SIZE, asset["hash"])
        ended = time.monotonic()
        peak = api.grown()
    speeds = [f"{SIZE / 1e6 / seconds:.0f} MB/s" for seconds in (sent - began, ended - sent)]
    memory = [f"{held / 2**20:.0f} MB" for held in (idle, peak)]
    figures.table(
        ["memory idle", "peak", "up", "down", "every byte came back"], [[*memory, *speeds, str(whole).lower()]]
    )
    return verdict("peak − idle memory, MB", (peak - idle) / 2**20, BOUND_MB) and whole
