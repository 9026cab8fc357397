"""The queue alone: claim, four fenced checkpoints, finish; one worker with many jobs under way, as it writes them.

Beside it the same statements, each sent by itself, and the plain psycopg floor: what any queue with these promises pays
that writes six single-row statements a job, each its own durable commit, with no CTE, no fence but the token, and one
table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from bench.ledger import make_known, work_off
from bench.place import fresh_database, verdict_at_least
from genflow.failures import Policy
from genflow.postgres.pool import Pool, open_pool
from genflow.protocol import Timing
from genflow.queue import CoalescingWriter, DirectWriter, Ledger, Queue, RowWriter
from genflow.queue.records import NewJob

JOBS, ROUNDS = 500, 3
CONNECTIONS = 8
SLOTS = 64
BOUND = 2.0

FLOOR_SCHEMA = """
create schema floor;
create table floor.jobs (id uuid primary key, state smallint not null, token bigint not null default 0,
    lease_until timestamptz, step smallint not null default 0, seq bigint generated always as identity)
    with (fillfactor = 70);
create index on floor.jobs (seq) where state = 2;
"""
CLAIM = """
update floor.jobs set state = 3, token = token + 1, lease_until = now() + interval '30 s'
where id = (select id from floor.jobs where state = 2 order by seq limit 1 for update skip locked)
returning id, token
"""
CHECKPOINT = "update floor.jobs set step = %s, lease_until = now() + interval '30 s' where id = %s and token = %s"
FINISH = "update floor.jobs set state = 10, token = token + 1 where id = %s and token = %s"


async def run() -> bool:
    """Print both ratios; whether gathered writes are as much faster as they are to be."""
    print(
        f"queue_floor: claim + 4 checkpoints + finish, {ROUNDS} rounds of {JOBS} jobs, one worker with"
        f" {SLOTS} slots, {CONNECTIONS} connections"
    )
    plain, single, gathered = 0.0, 0.0, 0.0
    with fresh_database() as conninfo:
        async with await open_pool(conninfo, CONNECTIONS, CONNECTIONS) as pool:
            await prepare_floor(pool)
            queue = Queue(pool, queue_limit=10 * JOBS, retention_s=3600.0)
            for _ in range(ROUNDS):
                direct = DirectWriter(pool)
                plain += await plain_floor(pool, JOBS, CONNECTIONS)
                single += await _genflow(queue, direct, direct, gathered=False)
                gathered += await _genflow(queue, direct, CoalescingWriter(direct), gathered=True)
    done = ROUNDS * JOBS
    print(
        f"  plain floor {done / plain:.0f} jobs/s   the same statements, each by itself {done / single:.0f} jobs/s  "
        f" genflow {done / gathered:.0f} jobs/s"
    )
    print(
        f"  genflow to the plain floor: {plain / gathered:.2f}; each by itself to the plain floor: {plain / single:.2f}"
    )
    return verdict_at_least("genflow to the same statements, each by itself", single / gathered, BOUND)


async def prepare_floor(pool: Pool) -> None:
    """Make the floor's table."""
    async with pool.connection() as connection:
        await connection.execute(FLOOR_SCHEMA)


async def plain_floor(pool: Pool, jobs: int, connections: int) -> float:
    """The seconds that so many jobs take by plain single-row statements."""
    async with pool.connection() as connection:
        await connection.execute(
            "insert into floor.jobs (id, state) select gen_random_uuid(), 2 from generate_series(1, %s)", [jobs]
        )

    async def lane() -> None:
        while True:
            async with pool.connection() as connection:
                row = await (await connection.execute(CLAIM)).fetchone()
                if row is None:
                    return
                for step in range(1, 5):
                    await connection.execute(CHECKPOINT, [step, row["id"], row["token"]])
                await connection.execute(FINISH, [row["id"], row["token"]])

    return await _seconds(lane, connections)


async def _genflow(queue: Queue, direct: DirectWriter, writer: RowWriter, *, gathered: bool) -> float:
    """The seconds that one worker takes, with as many jobs under way as it has slots; or else with a lane for each
    connection, where every write is on its way at once.
    """
    await queue.enqueue_many(
        [NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy()) for _ in range(JOBS)], scope="bench"
    )
    worker_id = uuid4()
    # A server each: lanes would take each other's slot.
    names = [f"gpu{number}" for number in range(CONNECTIONS)]
    servers = await make_known(direct, worker_id, *names, slots=SLOTS)
    ledger = Ledger(writer, worker_id, Timing.from_lease(30.0), retention_s=3600.0)

    async def lane() -> None:
        server = servers.pop()
        while claimed := await ledger.claim_unbound(server, slots=SLOTS, limit=1):
            await work_off(ledger, claimed[0][1], server, slots=SLOTS)

    async def worker() -> None:
        server, under_way = servers[0], set[asyncio.Task[None]]()
        while True:
            claimed = await ledger.claim_unbound(server, slots=SLOTS, limit=SLOTS - len(under_way))
            under_way |= {asyncio.create_task(work_off(ledger, hold, server, slots=SLOTS)) for _, hold in claimed}
            if not under_way:
                return
            ended, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()

    return await (_seconds(worker, 1) if gathered else _seconds(lane, CONNECTIONS))


async def _seconds(lane: Callable[[], Awaitable[None]], lanes: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return time.perf_counter() - began
