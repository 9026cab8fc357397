"""Whether it stays as quick: what a claim and a poll cost beside five million finished jobs, and on an empty table.

The two databases lie on one PostgreSQL on a disk and take turns, so that the ratio holds on any machine. The old jobs
have what a finished job leaves: job, spec, submit, attempt, picture.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench import figures
from bench.ledger import Lane
from bench.place import note_release, verdict
from genflow.failures import Policy
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.pool import Pool, open_pool
from genflow.queue import Queue
from genflow.queue.records import NewJob
from tests.support.postgres import open_folder, serving
from tests.support.service import small_workflow

OLD_JOBS = 5_000_000
ROWS_EACH = 5
"""Rows that each old job has: job, spec, submit, attempt, picture."""
LIVE, ROUNDS = 600, 500
BOUND = 1.2
PIECE = 2_000
"""Rows that are handed on at a time."""
FILLING = {"wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "4GB"}
OLD = "00000000-0000-4000-8000-000000000001"
BLOBS = 100_000
"""Different pictures: bytes are of no matter to a claim or a poll."""

# Ids rise with the number and are spread over all that there are, so that new ids fall between old ones.
_MADE = """
generate_series(1, %(jobs)s) as n,
lateral (select (lpad(to_hex(n * (9223372036854775807 / %(jobs)s)), 16, '0') || right(md5(n::text), 16))::uuid as id,
                now() - (%(jobs)s - n) * interval '0.5 s' as at) as made
"""
_FILL = {
    "blobs (hash, sha256, size)": """
        select sha256(n::text::bytea), sha256(n::text::bytea), 500000::bigint
        from generate_series(0, %(blobs)s - 1) as n
    """,
    "jobs (id, seq, state, token, worker_id, server_id, submit_no, step, attempt, executing_at, created_at, ended_at, "
    "expires_at)": """
        select id, n::bigint, (case when n %% 50 = 0 then 11 else 10 end)::smallint, 3::bigint, %(old)s::uuid, 1, 1,
               4::smallint, 1::smallint, at, at, at + interval '5 s', at + interval '90 days'
    """,
    "job_specs (job_id, workflow, body_hash, policy)": """
        select id, %(workflow)s, sha256(n::text::bytea), %(policy)s::json
    """,
    "submits (job_id, no, uuid, attempt, server_id, slot, token, state, client_id, number, created_at, accepted_at, "
    "running_at, ended_at, exec_start_ms, exec_end_ms, executed, entry)": """
        select id, 1, id, 1::smallint, 1, 0::smallint, 3::bigint, 10::smallint, 'bench', n::float8, at, at, at, at,
               0::bigint, 5000::bigint, true, %(entry)s::json
    """,
    "attempts (job_id, no, server_id, worker_id, started_at, ended_at, outcome, gpu_ms)": """
        select id, 1::smallint, 1, %(old)s::uuid, at, at, 'succeeded', 5000::bigint
    """,
    "assets (id, blob_hash, kind, job_id, submit_no, node_id, key, idx, name, type, content_type, size, "
    "created_at)": """
        select id, sha256((n %% %(blobs)s)::text::bytea), 'output', id, 1, '3', 'images', 0, 'a.png', 'image',
               'image/png', 500000::bigint, at
    """,
}
"""Each table with its columns, and what a finished job leaves there."""


@dataclass
class Side:
    """One of the two databases, and what each thing cost there, in seconds."""

    name: str
    pool: Pool
    queue: Queue
    lane: Lane
    old: list[UUID]
    """Finished jobs that were there before."""
    costs: dict[str, list[float]] = field(default_factory=dict)

    async def know_its_tables(self) -> None:
        """Count them, as autovacuum does after a minute: what is compared is their size, not what is known of it."""
        async with self.pool.connection() as connection:
            await connection.execute("analyze")

    async def timed(self, what: str, doing: Any) -> Any:
        """Its answer; the time it took is kept."""
        began = time.perf_counter()
        answer = await doing
        self.costs.setdefault(what, []).append(time.perf_counter() - began)
        return answer


async def run() -> bool:
    """Print the table; whether a claim and a poll cost at most `BOUND` times as much."""
    print(f"scale: a claim and a poll beside {OLD_JOBS:,} finished jobs, and on an empty table")
    return await _measured()


async def _measured() -> bool:
    with open_folder(on_disk=True) as folder, _postgres(folder) as admin, serving(admin) as server:
        empty, full = server.create(), server.create()
        began = time.monotonic()
        told = await asyncio.to_thread(_fill, full)
        filled_s, size = time.monotonic() - began, _size(full)
        print(f"  {OLD_JOBS:,} jobs, {size / 1e9:.1f} GB, in {filled_s:.0f} s: {told}")
        async with AsyncExitStack() as stack:
            sides = [await _side(stack, "empty", empty), await _side(stack, "full", full)]
            for number in range(LIVE):
                for side in sides:
                    await side.timed("submit", side.queue.enqueue(_job(number)))
            for side in sides:
                await side.know_its_tables()
            for number in range(ROUNDS):
                for side in sides if number % 2 else reversed(sides):
                    await _one_job(side, number)
    costs = {side.name: {what: statistics.median(took) for what, took in side.costs.items()} for side in sides}
    ratios = {what: costs["full"][what] / costs["empty"][what] for what in costs["empty"]}
    rows = [
        [what, f"{costs['empty'][what] * 1000:.2f} ms", f"{costs['full'][what] * 1000:.2f} ms", f"{ratio:.2f}"]
        for what, ratio in ratios.items()
    ]
    figures.table(["p50 of", "empty", f"{OLD_JOBS:,} finished jobs", "ratio"], rows)
    figures.table(
        ["filled", ""],
        [
            ["rows", f"{ROWS_EACH * OLD_JOBS + BLOBS:,}"],
            ["bytes", f"{size / 1e9:.1f} GB"],
            ["seconds", f"{filled_s:.0f}"],
        ],
    )
    figures.number("full_to_empty", ratios)
    bounded = ("claim", "poll of a live job", "poll of a finished job")
    return all([verdict(f"{what}, full to empty", ratios[what], BOUND) for what in bounded])


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """A server that writes no WAL for a table which the same transaction has emptied; its conninfo."""
    server = EmbeddedPostgres(folder / "data", state=folder / "state", settings=FILLING)
    try:
        conninfo = server.start()
        note_release(conninfo)
        yield conninfo
    finally:
        server.stop()


def _fill(conninfo: str) -> str:
    """Put the old jobs in, made by one session and taken in by another, then build the indexes; seconds of each."""
    values = {
        "jobs": OLD_JOBS, "blobs": BLOBS, "old": OLD, "workflow": json.dumps(small_workflow()),
        "policy": json.dumps({"max_attempts": 4}), "entry": json.dumps({"outputs": {}, "status": "success"}),
    }  # fmt: skip
    told = []
    with psycopg.connect(conninfo) as maker, psycopg.connect(conninfo) as taker:
        taker.execute("insert into genflow.servers (name, state) values ('old', 4)")
        taker.commit()
        taker.execute("set session_replication_role = replica")  # no trigger and no foreign key for each row
        taker.execute("set maintenance_work_mem = '1GB'")
        names = [f"genflow.{name.split()[0]}" for name in _FILL]
        taker.execute(f"truncate {', '.join(names)} cascade".encode())
        taker.execute("update pg_index set indisready = false where indrelid = any(%s::regclass[])", [names])
        for table, select in _FILL.items():
            began = time.monotonic()
            made = select if "generate_series" in select else f"{select} from {_MADE}"
            query = psycopg.ClientCursor(maker).mogrify(made.encode(), values)
            with (
                maker.cursor().copy(f"copy ({query}) to stdout (format binary)".encode()) as out,
                taker.cursor().copy(f"copy genflow.{table} from stdin (format binary, freeze)".encode()) as taken,
            ):
                while piece := b"".join(islice(out, PIECE)):  # it comes row by row
                    taken.write(piece)
            told.append(f"{table.split()[0]} {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        for name in names:
            taker.execute(f"reindex table {name}".encode())
        taker.execute("select setval(pg_get_serial_sequence('genflow.jobs', 'seq'), %s)", [OLD_JOBS])
        taker.commit()
        told.append(f"indexes {time.monotonic() - began:.0f} s")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("analyze")
        connection.execute("checkpoint")
    return ", ".join(told)


def _size(conninfo: str) -> int:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute("select pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


async def _side(stack: AsyncExitStack, name: str, conninfo: str) -> Side:
    pool: Pool = await stack.enter_async_context(await open_pool(conninfo, 1, 2))
    queue = Queue(pool, queue_limit=100_000, retention_s=3600.0)
    lane = Lane(pool, f"gpu-{name}")
    await lane.register()
    async with pool.connection() as connection:
        cursor = await connection.execute("select id from genflow.jobs tablesample system (0.1) limit 1000")
        old = [row["id"] for row in await cursor.fetchall()]
    return Side(name, pool, queue, lane, old)


def _job(number: int) -> NewJob:
    workflow = json.dumps(small_workflow(color=number))
    return NewJob(id=uuid4(), workflow=workflow, body_hash=b"", policy=Policy())


async def _one_job(side: Side, number: int) -> None:
    """Claim a job, look at it, end it, look again; and look at an old one."""
    claimed = await side.timed("claim", side.lane.claim())
    await side.timed("poll of a live job", side.queue.view(claimed.job_id))
    await side.timed("four checkpoints and the finish", side.lane.work(claimed))
    ended = side.old[number % len(side.old)] if side.old else claimed.job_id
    await side.timed("poll of a finished job", side.queue.view(ended))
