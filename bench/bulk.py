"""Many jobs at once, as a jobs file or a broker brings them, against COPY of the very same rows.

COPY checks nothing: no id that is known already, no limit of the queue. It writes the same three tables, with their
indexes and keys, in one transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from uuid import uuid4

from bench.place import fresh_database, verdict_at_least
from genflow.failures import Policy
from genflow.postgres.pool import Pool, open_pool
from genflow.queue import Queue
from genflow.queue.records import NewJob
from tests.support.service import small_workflow

JOBS, AT_ONCE, ROUNDS = 5_000, 1_000, 3
RETENTION_S = 3_600.0
BOUND = 0.3


async def run() -> bool:
    """Print jobs a second of both; whether the bulk enqueue is quick enough beside COPY."""
    print(f"bulk: {JOBS} jobs, {AT_ONCE} in a statement, beside COPY of the same rows; {ROUNDS} rounds in turns")
    ours, copied = 0.0, 0.0
    with fresh_database() as conninfo:
        async with await open_pool(conninfo, 2, 2) as pool:
            queue = Queue(pool, queue_limit=10 * ROUNDS * JOBS, retention_s=RETENTION_S)
            await queue.enqueue_many(_jobs(10), scope="file")  # the class of the workflow is known from here
            for _ in range(ROUNDS):
                ours += await _enqueue(queue, _jobs(JOBS))
                copied += await _copy(pool, _jobs(JOBS))
    done = ROUNDS * JOBS
    print(f"  COPY {done / copied:.0f} jobs/s   genflow {done / ours:.0f} jobs/s")
    return verdict_at_least("genflow to COPY", copied / ours, BOUND)


def _jobs(count: int) -> list[NewJob]:
    workflow = json.dumps(small_workflow())
    return [NewJob(id=uuid4(), workflow=workflow, body_hash=b"h" * 32, policy=Policy()) for _ in range(count)]


async def _enqueue(queue: Queue, jobs: Sequence[NewJob]) -> float:
    began = time.perf_counter()
    for first in range(0, len(jobs), AT_ONCE):
        await queue.enqueue_many(jobs[first : first + AT_ONCE], scope="file")
    return time.perf_counter() - began


async def _copy(pool: Pool, jobs: Sequence[NewJob]) -> float:
    began = time.perf_counter()
    policy = json.dumps(Policy().to_json())
    tables: dict[str, Iterable[Sequence[object]]] = {
        "jobs (id, state, class_id, created_at, expires_at)": ((j.id, 2, 0, "now", "tomorrow") for j in jobs),
        "job_specs (job_id, workflow, body_hash, metadata, policy)": (
            (j.id, j.workflow, j.body_hash, "{}", policy) for j in jobs
        ),
        "job_keys (tenant_id, scope, key, job_id, body_hash)": (
            (1, "file", str(j.id), j.id, j.body_hash) for j in jobs
        ),
    }
    async with pool.connection() as connection, connection.transaction(), connection.cursor() as cursor:
        for table, rows in tables.items():
            async with cursor.copy(f"copy genflow.{table} from stdin".encode()) as copy:
                for row in rows:
                    await copy.write_row(row)
    return time.perf_counter() - began
