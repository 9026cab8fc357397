"""From a committed job to the moment when an idle worker has claimed it, against a bare NOTIFY there and back.

The worker is a whole one, in this process, so that both moments are told by one clock.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import psycopg
import structlog

from bench.place import place, spread, verdict
from genflow.app import run_worker
from genflow.failures import Policy
from genflow.loops import cut_off
from genflow.postgres.pool import open_pool
from genflow.queue import Hold, Ledger, Queue
from genflow.queue.records import Claim, NewJob
from genflow.settings import Settings
from tests.support.service import Service, small_workflow

JOBS, BLOCKS = 25, 4
BOUND = 4.0


class Claims:
    """When each job's claim had returned."""

    def __init__(self) -> None:
        self._claimed: dict[UUID, asyncio.Future[float]] = {}

    def expect(self, job: UUID) -> asyncio.Future[float]:
        """The moment, once it has come."""
        self._claimed[job] = asyncio.get_running_loop().create_future()
        return self._claimed[job]

    @asynccontextmanager
    async def noted(self) -> AsyncIterator[None]:
        """The claims of every worker in this process are noted."""
        claim_unbound = Ledger.claim_unbound

        async def noting(ledger: Ledger, *arguments: Any, **options: Any) -> list[tuple[Claim, Hold]]:
            claimed = await claim_unbound(ledger, *arguments, **options)
            for claim, _ in claimed:
                if claim.job_id in self._claimed:
                    self._claimed.pop(claim.job_id).set_result(time.perf_counter())
            return claimed

        with patch.object(Ledger, "claim_unbound", noting):
            yield


async def run() -> bool:
    """Print both; whether a start is soon enough beside NOTIFY."""
    print(f"starts: {BLOCKS} blocks of {JOBS} jobs one after another, in turns with as many bare NOTIFY there and back")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # the worker's own lines
    starts: list[float] = []
    bare: list[float] = []
    claims = Claims()
    async with place() as genflow:
        [server] = await genflow.simulate(seconds_per_megapixel=0)
        await genflow.api()
        settings = Settings.model_validate(
            {"gpu": [f"{server.name}={server.url}"], "data": genflow.folder, "health_port": 0, "lease": 30.0}
        )
        async with (
            await open_pool(genflow.database, 2, 4) as pool, _echo(genflow.database) as ask, claims.noted(),
            run_worker(settings, genflow.database),
        ):  # fmt: skip
            queue = Queue(pool, queue_limit=10_000, retention_s=3_600.0)
            await _starts(genflow, queue, claims, 10)
            for _ in range(BLOCKS):
                starts += await _starts(genflow, queue, claims, JOBS)
                bare += [await ask() for _ in range(JOBS)]
    print(f"  NOTIFY there and back: {spread([1000 * each for each in bare], 'ms')}")
    print(f"  enqueue → claimed: {spread([1000 * each for each in starts], 'ms')}")
    return verdict("ratio of the medians", statistics.median(starts) / statistics.median(bare), BOUND)


async def _starts(genflow: Service, queue: Queue, claims: Claims, count: int) -> list[float]:
    """Seconds from the commit of each of these jobs to the answer of its claim."""
    took = []
    for number in range(count):
        job = NewJob(id=uuid4(), workflow=json.dumps(small_workflow(color=number)), body_hash=b"", policy=Policy())
        claimed = claims.expect(job.id)
        await queue.enqueue(job)
        committed = time.perf_counter()
        took.append(await claimed - committed)
        await genflow.succeeded(job.id)
    return took


@asynccontextmanager
async def _echo(conninfo: str) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """A call that sends one NOTIFY, has another connection answer it with one, and says the seconds that took."""
    near = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    far = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)

    async def answer() -> None:
        while True:
            async for _ in far.notifies(stop_after=1):
                pass
            await far.execute("notify bench_back")

    async def ask() -> float:
        began = time.perf_counter()
        await near.execute("notify bench_there")
        async for _ in near.notifies(stop_after=1):
            pass
        return time.perf_counter() - began

    async with near, far:
        await near.execute("listen bench_back")
        await far.execute("listen bench_there")
        answering = asyncio.create_task(answer())
        try:
            yield ask
        finally:
            await cut_off([answering])
