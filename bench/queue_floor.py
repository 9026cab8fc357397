"""The queue alone: claim, four fenced checkpoints, finish, against the plain psycopg floor of the same work.

The floor is what any queue with these promises pays: six single-row statements a job, each its own durable commit, on
as many connections, with no CTE, no fence but the token, and one table.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID, uuid4

from bench.place import fresh_database
from genflow.failures import Policy
from genflow.postgres.pool import Pool, open_pool
from genflow.protocol import HistoryEntry, Timing
from genflow.queue import DirectWriter, Ledger, Queue, Registry
from genflow.queue.records import NewJob, StoredOutput

JOBS = 1_000
CONNECTIONS = 8
ENTRY = HistoryEntry("success", None, {}, None, 0, 1_000, {})

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
    """Print the ratio. It has no bound yet: coalesced writes are to raise it."""
    with fresh_database() as conninfo:
        async with await open_pool(conninfo, CONNECTIONS, CONNECTIONS) as pool:
            floor = await _floor(pool)
            ours = await _genflow(pool)
    print(f"queue_floor: {JOBS} jobs, claim + 4 checkpoints + finish, {CONNECTIONS} connections")
    print(f"  floor {floor:.0f} jobs/s   genflow {ours:.0f} jobs/s   ratio {ours / floor:.2f}")
    return True


async def _floor(pool: Pool) -> float:
    async with pool.connection() as connection:
        await connection.execute(FLOOR_SCHEMA)
        await connection.execute(
            "insert into floor.jobs (id, state) select gen_random_uuid(), 2 from generate_series(1, %s)", [JOBS]
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

    return await _rate(lane)


async def _genflow(pool: Pool) -> float:
    writer, timing = DirectWriter(pool), Timing.from_lease(30.0)
    queue = Queue(pool, queue_limit=10 * JOBS, retention_s=3600.0)
    for _ in range(JOBS):
        await queue.enqueue(NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy()))
    servers = iter(range(CONNECTIONS))

    async def lane() -> None:
        worker_id = uuid4()
        registry = Registry(writer, worker_id)
        await registry.register_worker(name="bench", host="bench", version="0")
        name = f"gpu{next(servers)}"
        registered = await writer.write("register_server", {"name": name, "slots": 2, "tags": [], "vram": None})
        server: int = registered[0]["id"]
        ledger = Ledger(writer, worker_id, timing, retention_s=3600.0)
        while claimed := await ledger.claim_unbound(server, slots=2, limit=1):
            _, hold = claimed[0]
            intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
            await ledger.receipt(hold, intent.no, number=0.0, client_id="bench")
            await ledger.running(hold, intent.no, deadline_s=60)
            await ledger.run_ended(hold, intent.no, ENTRY)
            await ledger.finish(hold, [_output(hold.job_id)])

    return await _rate(lane)


def _output(job_id: UUID) -> StoredOutput:
    return StoredOutput(uuid4(), job_id.bytes * 2, job_id.bytes * 2, 1, "1", "images", 0, "a.png", "image", "image/png")


async def _rate(lane: object) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(CONNECTIONS)))  # type: ignore[operator]
    return JOBS / (time.perf_counter() - began)
