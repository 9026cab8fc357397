"""How many GPUs one PostgreSQL and one worker carry: fleets that grow until GPUs idle though jobs wait.

Simulated servers run jobs of 5 s, with a worker process for every 64 of them; the database is on a disk. Workers,
servers and PostgreSQL share this machine's cores, so that the knee measured here is the machine's. What each of them
takes of a core for a job is measured apart, and from that follows, as a derived figure, what a core of its own carries.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import figures
from bench.contestants import in_lanes
from bench.levels import KNEE, RUN_S, Level, carries, idle_share, knee, span_ms
from bench.machine import cpu_seconds
from bench.place import place, verdict
from tests.support.service import Process, Service, Simulator, until

FLEETS = (1, 4, 16, 64, 96, 128, 192, 256)
EACH = 64
"""Servers of a worker process, and of a process of simulators."""
RUNS_EACH = 3
SIDE = 64
PATIENCE = 4
"""How many times longer than without an idle GPU a fleet may take."""
SMALL = 4
"""A fleet that any machine must carry."""


async def run() -> bool:
    """Print the levels up to the first past the knee, and what follows from them."""
    print(f"fleet: jobs of {RUN_S:g} s on fleets of {', '.join(map(str, FLEETS))} servers, until GPUs idle")
    levels: list[Level] = []
    for servers in FLEETS:
        levels.append(await _level(servers))
        if levels[-1].idle > 2 * KNEE:
            break
    figures.table(
        ["servers", "jobs/s", "GPU idle share", "PostgreSQL", "workers", "simulators", "busiest worker", "used up"],
        [
            [
                str(each.servers), f"{each.rate:.2f}", f"{each.idle:.1%}", *(
                    f"{1000 * cpu:.0f} ms" for cpu in (each.postgres_s, each.workers_s, each.simulators_s)
                ), f"{each.busiest_worker:.2f} cores", each.limit,
            ]
            for each in levels
        ],
    )  # fmt: skip
    at = knee(levels)
    figures.table(
        [f"GPUs with jobs of {RUN_S:g} s", ""],
        [
            ["carried by this machine, all on it (measured)", str(at.servers)],
            ["a core for PostgreSQL would carry (derived)", str(carries(at.postgres_s))],
            ["a core for a worker process would carry (derived)", str(carries(at.workers_s))],
        ],
    )
    figures.number("idle_by_fleet", {str(each.servers): each.idle for each in levels})
    figures.number("knee", {"servers": at.servers, "postgres_s": at.postgres_s, "workers_s": at.workers_s})
    small = next(each for each in levels if each.servers == SMALL)
    return verdict(f"GPU idle share of {SMALL} servers, percent", 100 * small.idle, 1.0)


def workflow(number: int) -> dict[str, Any]:
    """A run of `RUN_S` seconds."""
    image = {"width": SIDE, "height": SIDE, "batch_size": 1, "color": number}
    return {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": f"fleet{number}"}},
    }


async def _level(servers: int) -> Level:
    jobs = servers * RUNS_EACH
    async with place(on_disk=True) as genflow:
        for first in range(0, servers, EACH):
            await _simulators(genflow, first, min(EACH, servers - first))
        await genflow.api(queue_limit=10 * jobs + 100)
        await in_lanes(4, [workflow(number) for number in range(jobs)], genflow.submit)
        [(folder,)] = await genflow.sql("show data_directory")
        postgres = int((Path(folder) / "postmaster.pid").read_text().split()[0])
        workers = [await _worker(genflow, first) for first in range(0, servers, EACH)]
        simulators = list({id(each.process): each.process for each in genflow.simulators}.values())
        before = [cpu_seconds(pid) for pid in (postgres, *_pids(workers), *_pids(simulators))]
        began, machine = time.monotonic(), _machine()

        async def all_over() -> bool:
            [(live,)] = await genflow.sql("select count(*) from genflow.jobs where state < 10")
            return bool(live == 0)

        with suppress(AssertionError):  # far past the knee: what was done by then is the figure
            await until(all_over, f"{jobs} jobs are over", RUNS_EACH * RUN_S * PATIENCE, 0.5)
        seconds, taken = time.monotonic() - began, _machine()
        after = [cpu_seconds(pid) for pid in (postgres, *_pids(workers), *_pids(simulators))]
        logs = [await server.get("/simulator/log") for server in genflow.simulators]
    cpu = [now - then for now, then in zip(after, before, strict=True)]
    ran = [run for log in logs for run in log if run[2] is not None]
    jobs = len(ran)
    return Level(
        servers,
        rate=jobs / (span_ms(ran) / 1000),
        idle=idle_share(ran, servers),
        postgres_s=cpu[0] / jobs,
        workers_s=sum(cpu[1 : 1 + len(workers)]) / jobs,
        simulators_s=sum(cpu[1 + len(workers) :]) / jobs,
        busiest_worker=max(cpu[1 : 1 + len(workers)]) / seconds,
        machine=(taken[0] - machine[0]) / (taken[1] - machine[1]),
    )


async def _simulators(genflow: Service, first: int, count: int) -> None:
    """So many servers in one process, named on from `first`."""
    process = await genflow.start(
        f"servers{first}", "simulate", "--json", "--port=0", f"--name=s{first}x", f"--count={count}",
        f"--seconds-per-megapixel={RUN_S / (SIDE * SIDE / 1e6) / 2}",
        f"--output-dir={genflow.folder / f'servers{first}'}",
    )  # fmt: skip
    ready = process.ready["ready"]
    genflow.simulators += [Simulator(name, url, process, genflow.http) for name, url in ready.items()]


async def _worker(genflow: Service, first: int) -> Process:
    """A worker for the servers of one process, set as in production."""
    servers = genflow.simulators[first : first + EACH]
    return await genflow.worker(
        f"worker{first}", servers=servers, lease=30, log_level="warning", probe_s=3, claim_poll_s=1, poll_ms=5000
    )


def _pids(processes: list[Process]) -> list[int]:
    return [process.handle.pid for process in processes]


def _machine() -> tuple[float, float]:
    """Time that all cores were taken so far, and all time, in the kernel's ticks."""
    ticks = [int(each) for each in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
