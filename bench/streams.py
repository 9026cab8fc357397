"""Two hundred event streams on one API process: what they take of its memory, and what they cost the jobs meanwhile.

The streams watch jobs that wait; beside them jobs run one after another, in turns of a block with streams and one
without.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import aiohttp

from bench import figures
from bench.place import low_mid_high, place, resident, verdict
from tests.support.service import Service, small_workflow

STREAMS, JOBS, BLOCKS = 200, 40, 4
WARM_UP = 20


async def run() -> bool:
    """Print memory and ratio; whether both hold."""
    print(
        f"streams: {STREAMS} event streams on one API process, {JOBS} short jobs a block, {BLOCKS} blocks of each kind"
    )
    with_streams: list[float] = []
    without: list[float] = []
    async with place() as genflow:
        [server] = await genflow.simulate(seconds_per_megapixel=0)
        api = await genflow.api()
        watched = [await genflow.submit(waiting(number)) for number in range(STREAMS)]
        await genflow.sql("update genflow.jobs set state = 1, run_at = 'infinity' where state = 2")
        await genflow.worker(servers=[server], lease=30, log_level="warning")
        await _jobs(genflow, WARM_UP)
        peak = 0
        for _ in range(BLOCKS):
            without += await _jobs(genflow, JOBS)
            async with _streams(genflow, watched):
                with_streams += await _jobs(genflow, JOBS)
                peak = max(peak, resident(api))
    rows = [["without", *low_mid_high(without)], [f"with {STREAMS} streams", *low_mid_high(with_streams)]]
    figures.table(["seconds of a job, from its acceptance to its end", "min", "p50", "p95"], rows)
    ratio = statistics.median(with_streams) / statistics.median(without)
    return all(
        [
            verdict("MB of memory of the API process", peak / 1_000_000, 150.0),
            verdict("p50 ratio of the jobs", ratio, 1.05),
        ]
    )


def waiting(number: int) -> dict[str, object]:
    """A workflow of its own for each watched job."""
    return small_workflow(color=10_000 + number)


async def _jobs(genflow: Service, count: int) -> list[float]:
    """Seconds from the acceptance of each of these jobs, one after another, to its end, by the database's clock.

    A client that asks now and then sees steps of its own pause, and a median that falls on one or the other.
    """
    jobs: list[UUID] = []
    for number in range(count):
        jobs.append(await genflow.submit(small_workflow(color=number)))
        await genflow.succeeded(jobs[-1])
    rows = await genflow.sql(
        "select extract(epoch from ended_at - created_at)::float8 from genflow.jobs where id = any(%s) order by seq",
        jobs,
    )
    return [float(seconds) for (seconds,) in rows]


@asynccontextmanager
async def _streams(genflow: Service, jobs: list[UUID]) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, AsyncExitStack() as stack:
        readers = []
        for job in jobs:
            path = f"{genflow.url}/api/v2/jobs/{job}/events"
            timeout = aiohttp.ClientTimeout(total=None)
            answer = await stack.enter_async_context(session.get(path, timeout=timeout))
            if answer.status != 200:
                raise SystemExit(await answer.text())
            readers.append(asyncio.create_task(answer.content.read()))
        try:
            yield
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
