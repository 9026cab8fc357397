"""Intake from RabbitMQ: messages into durably committed jobs, beside a plain aio-pika consumer of the same messages.

Both have a prefetch of 1,000 and the same broker, and take turns; the plain one acknowledges each message and does
nothing with it. A server's node classes are known, so that every workflow is checked as in production.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from importlib import resources
from uuid import uuid4

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench import figures
from bench.place import fresh_database, verdict_at_least
from genflow.failures import Policy
from genflow.intake.jobs_file import FileJob
from genflow.intake.rabbit import RabbitIntake
from genflow.intake.rabbit_broker import publish
from genflow.intake.rabbit_jobs import Desk
from genflow.postgres.pool import Pool, open_pool
from genflow.queue import DirectWriter, Queue, Registry, Sweeps
from tests.support.rabbit import Broker, running_broker
from tests.support.service import small_workflow, until

MESSAGES = 5_000
ROUNDS = 3
PREFETCH = 1_000


async def run() -> bool:
    """Print the ratio; whether it holds its bound."""
    print(f"rabbit_intake: {MESSAGES} messages, {ROUNDS} rounds, prefetch {PREFETCH}")
    with running_broker() as broker, fresh_database() as conninfo:
        await asyncio.to_thread(broker.wait)
        figures.ran_with("RabbitMQ", broker.release)
        async with await open_pool(conninfo, 2, 4) as pool:
            await _know_a_server(pool)
            plain, ours = [], []
            for _ in range(ROUNDS):
                await _publish(broker, "plain")
                plain.append(await _plain(broker, "plain"))
                await _publish(broker, "renders")
                ours.append(await _genflow(broker, "renders", pool))
    rows = [
        [name, *(f"{rate:,.0f}" for rate in rates)]
        for name, rates in (("plain consume + ack", plain), ("genflow intake", ours))
    ]
    figures.table(["messages/s", *(f"round {number}" for number in range(1, ROUNDS + 1))], rows)
    return verdict_at_least("ratio of the medians", statistics.median(ours) / statistics.median(plain), 0.2)


async def _know_a_server(pool: Pool) -> None:
    writer = DirectWriter(pool)
    registry = Registry(writer, uuid4())
    await registry.register_worker(name="bench", host="bench", version="0")
    known = await registry.register_server(name="gpu0", url="http://gpu0", slots=2, loopback=False, alive_s=60)
    body = resources.files("genflow.simulator").joinpath("data", "object_info.json").read_text("utf-8")
    await registry.save_object_info(b"hash", body)
    await registry.probed(
        known.id, url="http://gpu0", healthy=True, boot=None, has_jobs_route=True, capabilities_hash=b"hash"
    )


async def _publish(broker: Broker, queue: str) -> None:
    workflow = json.dumps(small_workflow())
    await publish(
        broker.url,
        queue,
        [FileJob(line=0, id=uuid4(), workflow=workflow) for _ in range(MESSAGES)],
    )


async def _plain(broker: Broker, queue: str) -> float:
    done = asyncio.Event()
    seen = 0
    began = time.monotonic()

    async def take(message: AbstractIncomingMessage) -> None:
        nonlocal seen
        await message.ack()
        seen += 1
        if seen == MESSAGES:
            done.set()

    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        source = await channel.get_queue(queue)
        await source.consume(take)
        await done.wait()
        return MESSAGES / (time.monotonic() - began)


async def _genflow(broker: Broker, name: str, pool: Pool) -> float:
    queue = Queue(pool, queue_limit=10 * ROUNDS * MESSAGES, retention_s=3600.0)
    intake = RabbitIntake(
        queue, Desk(queue, name, Policy(), 4 * 1024 * 1024), Sweeps(DirectWriter(pool), lease_s=30.0),
        url=broker.url, name=name, ack="accepted", prefetch=PREFETCH, lease_s=30.0,
    )  # fmt: skip
    before = await _jobs(pool)
    began = time.monotonic()
    intake.start()

    async def all_committed() -> bool:
        return await _jobs(pool) >= before + MESSAGES

    await until(all_committed, "every message is a job", 120, 0.02)
    took_s = time.monotonic() - began
    await intake.stop()
    if left := await broker.depth(name):
        raise SystemExit(f"{left} messages were not acknowledged")
    return MESSAGES / took_s


async def _jobs(pool: Pool) -> int:
    async with pool.connection() as connection:
        row = await (await connection.execute("select count(*) as jobs from genflow.jobs")).fetchone()
        assert row is not None
        jobs: int = row["jobs"]
        return jobs
