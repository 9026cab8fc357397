"""Who makes pictures how fast: genflow, a Celery worker built the old way, the official proxy, and a bare script, each
on a simulated server of its own, taking turns in one run.

Jobs/s through a server whose runs take no time; what lies between a submit and the stored picture besides the run; and
how long a GPU idles under a backlog. The floor is what any queue with genflow's promises pays in PostgreSQL, without a
server.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

from bench import figures
from bench.celery_way.side import CeleryClient, celery_workers
from bench.contestants import Bare, Contestant, Genflow, OldWay, Proxy
from bench.false_ends import official_proxy
from bench.levels import idle_share
from bench.place import fresh_database, place, verdict
from bench.queue_floor import plain_floor, prepare_floor
from genflow.postgres.pool import open_pool
from tests.support.rabbit import programs, running_broker

NO_OPS, SINGLES, BACKLOG = 150, 40, 20
SIDE = 512
"""Pixels of a side of a picture whose run takes `RUN_S`; a smaller one takes less, by its pixels."""
RUN_S, SINGLE_RUN_S = 1.0, 0.2
FLOOR_JOBS = 500
FLOOR_CONNECTIONS = 2


def workflow(number: int, seconds: float) -> dict[str, Any]:
    """A run of so many seconds: one picture, another one each time. 0 is a run of next to nothing."""
    side = max(16, round(SIDE * (seconds / RUN_S) ** 0.5))
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": side, "height": side, "batch_size": 1, "color": number}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": f"p{number}"}},
    }


async def run() -> bool:
    """Print the three figures; whether genflow keeps the GPU as busy as a bare script does."""
    print(f"side_by_side: {NO_OPS} jobs of no time, {SINGLES} one after another, {BACKLOG} of {RUN_S:g} s in a backlog")
    floor = await _floor()
    async with _contestants() as all_of_them:
        overheads = await _overheads(all_of_them)
        rates = {each.name: await _rate(each) for each in all_of_them}
        idle = {each.name: await _idle_share(each) for each in all_of_them}
    names = [each.name for each in all_of_them]
    p50 = {name: statistics.median(overheads[name]) * 1000 for name in names}
    p95 = {name: sorted(overheads[name])[int(0.95 * SINGLES)] * 1000 for name in names}
    rows = [
        [name, f"{rates[name]:.1f}", f"{p50[name]:.0f} ms", f"{p95[name]:.0f} ms", f"{idle[name]:.2%}"]
        for name in names
    ]
    rows.append(["floor: PostgreSQL alone", f"{floor:.0f}", "", "", ""])
    figures.table(["", "jobs/s, no-op server", "overhead p50", "overhead p95", "GPU idle share"], rows)
    for name, values in (("jobs_per_s", rates), ("p50_ms", p50), ("p95_ms", p95), ("idle", idle)):
        figures.number(name, values)
    points = 100 * (idle[Genflow.name] - idle[Bare.name])
    return verdict("points of GPU idle share above the bare script", points, 0.5)


@asynccontextmanager
async def _contestants() -> AsyncIterator[list[Contestant]]:
    if programs() is None:
        raise SystemExit("RabbitMQ is not here; scripts/system_rabbitmq.sh brings it")
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(running_broker())
        genflow = await stack.enter_async_context(place())
        mine, plain, proxied, old = await genflow.simulate(4, seconds_per_megapixel=RUN_S / (SIDE * SIDE / 1e6) / 2)
        await asyncio.to_thread(broker.wait)
        figures.ran_with("RabbitMQ", broker.release)
        figures.ran_with("Celery", version("celery"))
        await genflow.api(scrub=True)
        await genflow.worker(servers=[mine], lease=30, log_level="warning")
        proxy = await stack.enter_async_context(official_proxy(proxied.url, genflow.folder))
        [worker] = stack.enter_context(celery_workers(broker.url, {"gpu0": old.url}, genflow.folder))
        client = CeleryClient(broker.url, genflow.folder)
        stack.callback(client.close)
        await worker.ready()
        yield [
            Genflow(mine, genflow),
            OldWay(old, client),
            Proxy(proxied, proxy, genflow.http, genflow.folder),
            Bare(plain, genflow.folder),
        ]


async def _overheads(all_of_them: list[Contestant]) -> dict[str, list[float]]:
    """Seconds of each single job from its submit to its stored picture, less its run by the server's log."""
    took: dict[str, list[float]] = {each.name: [] for each in all_of_them}
    for number in range(SINGLES + 2):
        for each in all_of_them:
            began = time.time()
            ended = await each.picture(workflow(number, SINGLE_RUN_S))
            _, start_ms, end_ms = (await each.server.get("/simulator/log"))[-1]
            if number >= 2:  # the first of each warms caches
                took[each.name].append(ended - began - (end_ms - start_ms) / 1000)
    return took


async def _rate(each: Contestant) -> float:
    began = time.time()
    ended = await each.pictures([workflow(1_000 + number, 0.0) for number in range(NO_OPS)])
    return NO_OPS / (max(ended) - began)


async def _idle_share(each: Contestant) -> float:
    before = len(await each.server.get("/simulator/log"))
    await each.pictures([workflow(2_000 + number, RUN_S) for number in range(BACKLOG)])
    return idle_share((await each.server.get("/simulator/log"))[before:])


async def _floor() -> float:
    """Jobs/s of the six single-row statements that a job needs at least, on a connection for each prompt at a time."""
    with fresh_database() as conninfo:
        async with await open_pool(conninfo, FLOOR_CONNECTIONS, FLOOR_CONNECTIONS) as pool:
            await prepare_floor(pool)
            return FLOOR_JOBS / await plain_floor(pool, FLOOR_JOBS, FLOOR_CONNECTIONS)
