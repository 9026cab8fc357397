"""A file's jobs together: accepted whole or not at all, counted, paused, told row by row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import psycopg

from genflow.errors import GenflowError
from genflow.postgres.pool import Pool
from genflow.protocol import boottime
from genflow.queue.classes import Classes
from genflow.queue.dead import AlreadyRequeued, DeadLetters, Mended
from genflow.queue.many import Fate, enqueue_many
from genflow.queue.records import NewJob
from genflow.queue.statements import statement
from genflow.queue.writer import OUTAGE, DirectWriter, Row

PAGE = 500
STEP = 500
"""Jobs that one statement sets aside, or brings back."""
RATE_WINDOW_S = 600.0
"""Seconds over which a batch's rate is taken."""

_NAMESPACE = UUID("9f0a3f0e-5a52-5e62-8f6e-6f2f6c1f0b27")
_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of a file: its line, its job, and the values that it sets."""

    line: int
    job: NewJob
    values: Mapping[str, Any]


def batch_id(jobs: Sequence[UUID]) -> UUID:
    """The id of the batch of these rows: the same file is the same batch."""
    return uuid5(_NAMESPACE, ",".join(map(str, jobs)))


class OtherBody(GenflowError):
    """A row's id belongs to a job with another body."""

    def __init__(self, rows: Sequence[BatchRow]) -> None:
        first = rows[0]
        more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        super().__init__(
            "job_id_reuse",
            f"line {first.line}: the id {first.job.id} belongs to a job with another body{more}; nothing was enqueued."
            " Give it a new id, or say --retry-failed where that job failed",
            status=409,
            details={"lines": [row.line for row in rows[:20]], "job_id": str(first.job.id)},
        )


class _Transaction:
    """A writer whose statements belong to one open transaction, each behind a savepoint."""

    def __init__(self, connection: psycopg.AsyncConnection[Row]) -> None:
        self._connection = connection
        self.outages = 0

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        async with self._connection.transaction():
            cursor = await self._connection.execute(statement(name), params)
            return await cursor.fetchall() if cursor.description else []


class Batches:
    """Accepts batches and tells of them. `hint` tells the workers of new jobs."""

    def __init__(
        self,
        pool: Pool,
        classes: Classes,
        dead: DeadLetters,
        *,
        queue_limit: int,
        retention_s: float,
        patience_s: float,
        hint: Callable[[str], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._writer = DirectWriter(pool, patience_s=patience_s)
        self._classes = classes
        self._dead = dead
        self._limit = queue_limit
        self._retention_s = retention_s
        self._patience_s = patience_s
        self._hint = hint

    async def create(self, name: str, rows: Sequence[BatchRow], *, retry_failed: bool = False, tenant: int = 1) -> UUID:
        """Commit the rows that are new, and the batch of them all; its id. Rows that are known join as they are.

        All in one transaction: raises OtherBody, GenflowError `queue_full` or `batch_paused`, and then nothing was
        enqueued. Sent again it finds what it did. With `retry_failed`, rows whose job failed then become new jobs one
        by one, as the rows say it now; QueueFull in the middle of that leaves the rest to the next time.
        """
        give_up_at = boottime() + self._patience_s
        distinct = list({row.job.id: row for row in reversed(rows)}.values())[::-1]  # the first row of each job
        classes = await self._classes.of([row.job.workflow for row in distinct])
        while True:
            try:
                batch, failed = await self._create(name, rows, distinct, classes, retry_failed, tenant)
                break
            except OUTAGE:
                if boottime() > give_up_at:
                    raise
                await asyncio.sleep(_AGAIN_S)
        await self._hint("queued")
        for job_id, row in failed:
            mended = Mended(workflow=row.job.workflow, body_hash=row.job.body_hash, values=row.values or None)
            with suppress(AlreadyRequeued):  # somebody else was faster
                await self._dead.requeue(job_id, mended=mended, tenant=tenant)
        return batch

    async def _create(
        self,
        name: str,
        rows: Sequence[BatchRow],
        distinct: Sequence[BatchRow],
        classes: Sequence[int],
        retry_failed: bool,
        tenant: int,
    ) -> tuple[UUID, list[tuple[UUID, BatchRow]]]:
        """The batch, and the dead letters that are to be tried again with their rows."""
        batch = batch_id([row.job.id for row in rows])
        async with self._pool.connection(timeout=5.0) as connection, connection.transaction():
            writer = _Transaction(connection)
            arrivals = await enqueue_many(
                writer,
                [row.job for row in distinct],
                classes,
                scope="file",
                queue_limit=self._limit,
                retention_s=self._retention_s,
                tenant=tenant,
                batch=batch,
            )
            known = {
                got.job_id: row
                for row, got in zip(distinct, arrivals, strict=True)
                if retry_failed and got.fate in (Fate.KNOWN, Fate.OTHER_BODY)
            }
            dead = await writer.write("failed_of", {"jobs": list(known), "tenant": tenant}) if known else []
            failed = {row["id"]: known[row["id"]] for row in dead}
            other = [
                row
                for row, got in zip(distinct, arrivals, strict=True)
                if got.fate is Fate.OTHER_BODY and got.job_id not in failed
            ]
            if other:
                raise OtherBody(other)
            if any(got.fate is Fate.FULL for got in arrivals):
                new = sum(got.fate in (Fate.NEW, Fate.FULL) for got in arrivals)
                raise GenflowError(
                    "queue_full",
                    f"the queue takes at most {self._limit} jobs and has no room for the {new} new ones of this file;"
                    " nothing was enqueued: wait, split the file, or raise queue_limit",
                    status=429,
                    details={"limit": self._limit, "got": new},
                )
            leads = {row.job.id: got.job_id for row, got in zip(distinct, arrivals, strict=True)}
            before = await writer.write("batch_state", {"batch": batch, "tenant": tenant})
            if before and before[0]["state"] == 2:
                raise GenflowError(
                    "batch_paused", f"the batch {batch} of this file is paused: genflow batches resume {batch}",
                    status=409,
                )  # fmt: skip
            kept = await writer.write(
                "create_batch",
                {
                    "batch": batch,
                    "tenant": tenant,
                    "name": name,
                    "retention_s": self._retention_s,
                    "rows": [row.line for row in rows],
                    "jobs": [leads[row.job.id] for row in rows],
                    "sets": [json.dumps(dict(row.values)) for row in rows],
                },
            )
            if not kept:
                raise OtherBody(rows)
        return batch, list(failed.items())

    async def page(self, *, limit: int, before: datetime | None = None, tenant: int = 1) -> list[Row]:
        """Batches, newest first."""
        return await self._writer.write("batch_list", {"tenant": tenant, "limit": limit, "before": before})

    async def exists(self, batch: UUID, *, tenant: int = 1) -> bool:
        """Whether there is such a batch. Its rows are not read, as `counts` does."""
        return bool(await self._writer.write("batch_state", {"batch": batch, "tenant": tenant}))

    async def counts(self, batch: UUID, *, tenant: int = 1) -> Row | None:
        """The batch with its rows counted as batch_counts.sql does, or None."""
        rows = await self._writer.write("batch_counts", {"batch": batch, "tenant": tenant, "window_s": RATE_WINDOW_S})
        return rows[0] if rows else None

    async def rows(self, batch: UUID, *, after: int = 0, limit: int = PAGE, tenant: int = 1) -> list[Row]:
        """Up to `limit` rows after line `after`, as batch_rows.sql tells them."""
        return await self._writer.write(
            "batch_rows", {"batch": batch, "tenant": tenant, "after": after, "limit": limit}
        )

    async def all_rows(self, batch: UUID, *, tenant: int = 1) -> AsyncIterator[Row]:
        """Every row, page after page."""
        after = 0
        while page := await self.rows(batch, after=after, tenant=tenant):
            for row in page:
                yield row
            after = page[-1]["row_no"]

    async def scrubbed(self, batch: UUID) -> bool:
        """Whether nothing that its jobs left on servers is still to be taken away."""
        return not await self._writer.write("scrubs_left", {"batch": batch})

    async def pause(self, batch: UUID, *, tenant: int = 1) -> None:
        """Nothing more of it is claimed; what runs goes on. GenflowError `not_found`."""
        await self._move("batch_pause", batch, tenant)

    async def resume(self, batch: UUID, *, tenant: int = 1) -> None:
        """It goes on where it was paused. GenflowError `not_found`."""
        await self._move("batch_resume", batch, tenant)
        await self._writer.write("announce", {})

    async def _move(self, name: str, batch: UUID, tenant: int) -> None:
        if not await self.exists(batch, tenant=tenant):
            raise GenflowError("not_found", f"there is no batch {batch}", status=404)
        while len(await self._writer.write(name, {"batch": batch, "tenant": tenant, "limit": STEP})) == STEP:
            pass
