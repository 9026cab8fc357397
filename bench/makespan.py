"""How long a batch takes on servers that are not alike, beside the same list scheduled greedily by an event simulation.

Servers of speed 1, 1, 2 and 4, a hundred jobs, the twentieth ten times as long. The greedy schedule gives each job, in
the list's order, to the server that is free first; it knows no network, no database and no picture to fetch.
"""

from __future__ import annotations

import heapq
from typing import Any

from bench import figures
from bench.place import place, verdict
from tests.support.service import Service, Simulator

SPEEDS = (1.0, 1.0, 2.0, 4.0)
JOBS, LONG = 100, 20
RUN_S = 1.0
"""Seconds of a usual job on a server of speed 1."""
SIDE = 256
_LONG_FACTOR = 10


def lengths() -> list[float]:
    """Seconds of each job on a server of speed 1."""
    return [RUN_S * (_LONG_FACTOR if number == LONG else 1) for number in range(1, JOBS + 1)]


def greedy(jobs: list[float]) -> float:
    """The makespan of the list, in seconds, where each job goes to the server that is free first."""
    free = [(0.0, -speed) for speed in SPEEDS]
    heapq.heapify(free)
    end = 0.0
    for seconds in jobs:
        at, speed = heapq.heappop(free)
        done = at + seconds / -speed
        end = max(end, done)
        heapq.heappush(free, (done, speed))
    return end


def workflow(number: int, seconds: float) -> dict[str, Any]:
    """A run of so many seconds at speed 1: pictures of a fixed size, as many as it takes."""
    batch = round(seconds / RUN_S)
    image = {"width": SIDE, "height": SIDE, "batch_size": batch, "color": number}
    return {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": f"span{number}"}},
    }


async def run() -> bool:
    """Print both makespans; whether genflow's is at most 1.10 times the greedy one."""
    jobs = lengths()
    print(f"makespan: {JOBS} jobs of {RUN_S:g} s, number {LONG} of {RUN_S * _LONG_FACTOR:g} s; speeds {SPEEDS}")
    async with place() as genflow:
        servers = await genflow.simulate_together(
            len(SPEEDS), speed=",".join(map(str, SPEEDS)), seconds_per_megapixel=RUN_S / (SIDE * SIDE / 1e6) / 2
        )
        await genflow.api()
        ids = [await genflow.submit(workflow(number, seconds)) for number, seconds in enumerate(jobs, 1)]
        await genflow.worker(lease=30, log_level="warning")
        for job in ids:
            await genflow.succeeded(job, within_s=300)
        ours, shares = await _makespan(genflow, servers)
    theirs = greedy(jobs)
    told = ", ".join(map(str, shares))
    rows = [["greedy, simulated", f"{theirs:.2f} s", ""], ["genflow", f"{ours:.2f} s", told]]
    figures.table(["", "makespan", "jobs by server"], rows)
    return verdict("ratio", ours / theirs, 1.10)


async def _makespan(genflow: Service, servers: list[Simulator]) -> tuple[float, list[int]]:
    """From the first run's start to the last one's end, by the servers' own logs; and how many each ran."""
    logs = [await server.get("/simulator/log") for server in servers]
    runs = [run for log in logs for run in log]
    if len(runs) != JOBS:
        raise SystemExit(f"the servers ran {len(runs)} of {JOBS}")
    span_ms = max(end for *_, end in runs) - min(start for _, start, _ in runs)
    return span_ms / 1000, [len(log) for log in logs]
