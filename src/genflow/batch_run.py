"""A jobs file from its first row to its last result in one process: `genflow run`.

Postgres keeps the jobs, so that a run that was interrupted, by whatever, is gone on with by the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from genflow import app
from genflow.api.batches import row_shape
from genflow.api.making import Maker
from genflow.api.rows import jobs_of
from genflow.errors import GenflowError
from genflow.fleet.choice import Lengths
from genflow.intake.batch import enqueue_file
from genflow.intake.jobs_file import FileJob, Row
from genflow.intake.template_rows import TemplateRow, local_files, sent
from genflow.jobs import State
from genflow.loops import happens
from genflow.postgres.pool import Pool, open_pool
from genflow.protocol import boottime
from genflow.queue import Queue
from genflow.queue.batches import Batches
from genflow.queue.writer import Row as Counts
from genflow.settings import Settings
from genflow.worker.telling import DeadLettered, Done, Told

LOOK_S = 2.0
"""Longest time between two looks at how many rows are still to do, in seconds."""
SCRUB_S = 30.0
"""Longest time that a run waits at its end until its servers are clean, in seconds."""
_CONNECTIONS = 3


@dataclass(slots=True)
class Report:
    """Called as a run goes on. `again`: a row whose job has its result already; `counted`: how the rows stand."""

    told: Callable[[Told], None]
    again: Callable[[UUID], None]
    chosen: Callable[[str, Lengths], None]
    counted: Callable[[Counts], None] = lambda counts: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the rows: how many have a result, the dead letters with their reasons, and the rest."""

    acknowledged: int = 0
    dead: list[tuple[UUID, str]] = field(default_factory=list)
    others: int = 0
    unfinished: int = 0


async def run_file(
    settings: Settings, name: str, given: Sequence[Row], report: Report, stopped: asyncio.Event
) -> Outcome:
    """Enqueue the rows, work on them until each is at its end or `stopped` is set; what became of them.

    Raises what `jobs_of`, `enqueue_file` and `run_worker` raise.
    """
    async with app.open_database(settings) as conninfo:
        pool = await open_pool(conninfo, 1, _CONNECTIONS)
        try:
            queue = Queue(pool, queue_limit=settings.queue_limit, retention_s=settings.retention_s)
            batches = queue.batches
            jobs = await _made(settings, name, given, queue, pool)
            batch = await enqueue_file(
                queue, name, jobs, policy=settings.policy(), max_workflow_bytes=settings.max_workflow_bytes,
                lenient=settings.lenient,
            )  # fmt: skip
            rows = [row async for row in batches.all_rows(batch)]
            progress = _Progress(report, rows)
            if progress.left:
                async with app.run_worker(settings, conninfo, tell=progress.told, on_choice=report.chosen):
                    await _until_done(batches, batch, progress, stopped)
                    await _until_scrubbed(batches, batch, stopped)
            return _outcome([row async for row in batches.all_rows(batch)])
        finally:
            await pool.close()


async def _made(settings: Settings, name: str, given: Sequence[Row], queue: Queue, pool: Pool) -> list[FileJob]:
    """The jobs of the rows; the files that they name are in the store then."""
    if all(isinstance(row, FileJob) for row in given):
        return [row for row in given if isinstance(row, FileJob)]
    maker = Maker.of(queue, await app.claim_store(settings, pool), settings)
    assets = {hash: await maker.add_file(file.path) for hash, file in local_files(given).items()}
    rows = [replace(row, values=sent(row, assets)) if isinstance(row, TemplateRow) else row for row in given]
    return await jobs_of(maker, rows, name)


@asynccontextmanager
async def stored_rows(settings: Settings, batch: UUID) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The rows of a batch in the data folder of a run, as the API shows them; also while the run goes on.

    GenflowError `not_found` where there is no such batch.
    """
    async with app.open_database(settings) as conninfo:
        pool = await open_pool(conninfo, 1, 1)
        try:
            batches = Queue(pool, queue_limit=settings.queue_limit, retention_s=settings.retention_s).batches
            if not await batches.exists(batch):
                raise GenflowError("not_found", f"{settings.data} holds no batch {batch}", status=404)
            yield (row_shape(row) async for row in batches.all_rows(batch))
        finally:
            await pool.close()


class _Progress:
    """Passes on what is told, and knows when it is worth a look whether all is done."""

    def __init__(self, report: Report, rows: Sequence[Counts]) -> None:
        self.report = report
        self.ended = asyncio.Event()
        self._rows: Counter[UUID] = Counter()
        for row in rows:
            if row["state"] == State.SUCCEEDED:
                report.again(row["id"])
            elif row["state"] is not None and not State(row["state"]).terminal:
                self._rows[row["id"]] += 1
        self.left = len(self._rows)

    def told(self, told: Told) -> None:
        self.report.told(told)
        if isinstance(told, Done):
            for _ in range(self._rows[told.job] - 1):
                self.report.again(told.job)
        if isinstance(told, Done | DeadLettered):
            self.left -= 1
            if self.left <= 0:
                self.ended.set()


async def _until_done(batches: Batches, batch: UUID, progress: _Progress, stopped: asyncio.Event) -> None:
    stopping = asyncio.create_task(_set_after(stopped, progress.ended))
    try:
        while not stopped.is_set():
            await happens(progress.ended, LOOK_S)
            progress.ended.clear()
            counts = await batches.counts(batch)
            if counts is None:
                return
            progress.report.counted(counts)
            if counts["queued"] + counts["running"] == 0:
                return
    finally:
        stopping.cancel()


async def _until_scrubbed(batches: Batches, batch: UUID, stopped: asyncio.Event) -> None:
    """No later process takes away what the jobs left; but a server that went away is not waited for."""
    give_up_at = boottime() + SCRUB_S
    while not stopped.is_set() and boottime() < give_up_at and not await batches.scrubbed(batch):
        await happens(stopped, 0.2)


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()


def _outcome(rows: Sequence[Counts]) -> Outcome:
    states = Counter(row["state"] for row in rows)
    dead: dict[UUID, str] = {}
    for row in rows:
        if row["state"] == State.FAILED:
            dead[row["id"]] = row_shape(row)["reason"] or "unknown"
    return Outcome(
        acknowledged=states[State.SUCCEEDED],
        dead=list(dead.items()),
        others=states[State.CANCELED] + states[State.EXPIRED],
        unfinished=sum(states[state] for state in State if not state.terminal),
    )
