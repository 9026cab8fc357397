"""The ways by which the queue's statements reach Postgres.

A statement is one transaction. Every statement of the queue may be sent again after a lost connection: it is fenced by
token, or keyed by an id of its own, so that a second time finds the first. A statement of many rows, each of one job,
answers each row by its place: the fenced writes of one worker's jobs can share it (coalescing.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psycopg
import structlog
from psycopg_pool import PoolTimeout, TooManyRequests

from genflow.postgres.pool import Pool
from genflow.protocol import boottime
from genflow.queue.statements import statement

log = structlog.get_logger()

Row = dict[str, Any]

OUTAGE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
    TooManyRequests,
)
"""What psycopg raises while the database is away, restarting, failing over, or too slow to lock."""

_OF_THE_DATABASE = ("08", "25", "40", "53", "57")
"""Classes of SQLSTATE that tell of the server or of chance: connection, read-only, deadlock, resources, shutdown."""


def of_a_row(error: Exception) -> bool:
    """Whether Postgres refused what it was sent: a row that stays locked, a value past some limit of its own."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and not state.startswith(_OF_THE_DATABASE)


class Writer(Protocol):
    """Runs one statement of sql/ by name."""

    @property
    def outages(self) -> int:
        """How often a statement met a lost connection and was sent again."""
        ...

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows that the statement returned, once it is committed."""
        ...


class RowWriter(Writer, Protocol):
    """Takes one row of a statement of many, too."""

    async def write_row(self, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
        """What a statement of many rows answered for this row, once it is committed; None where it found nothing.

        `common` holds for all rows of the statement.
        """
        ...


class DirectWriter:
    """Sends each statement at once on a pooled connection, again and again through an outage of the database.

    `through_locks`: also where a row stayed locked for the whole `lock_timeout`; else the caller learns of that.
    """

    def __init__(self, pool: Pool, *, patience_s: float = 600.0, through_locks: bool = True) -> None:
        self._pool = pool
        self._patience_s = patience_s
        self._through_locks = through_locks
        self.outages = 0

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """Run `name`; psycopg's own error after `patience_s` seconds without a database."""
        return await self._write(name, params, through_locks=self._through_locks)

    async def write_row(self, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
        """Run `name` for this row alone."""
        return await written_alone(self, name, common, row)

    async def write_rows(
        self, name: str, common: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> list[Row | None]:
        """Run `name` for all of these rows in one transaction; the answers in their order.

        What Postgres says of a row, that it stays locked for one, is raised at once: the others need not wait with it.
        """
        params = {**common, **columns(rows)}
        return _by_place(await self._write(name, params, through_locks=False, through_rows=False), len(rows))

    async def _write(
        self, name: str, params: Mapping[str, Any], *, through_locks: bool, through_rows: bool = True
    ) -> list[Row]:
        give_up_at = boottime() + self._patience_s
        delay_s = 0.05
        while True:
            try:
                async with self._pool.connection(timeout=5.0) as connection:
                    cursor = await connection.execute(statement(name), params)
                    return await cursor.fetchall() if cursor.description else []
            except OUTAGE as error:
                locked = isinstance(error, psycopg.errors.LockNotAvailable)
                final = (locked and not through_locks) or (of_a_row(error) and not through_rows)
                if final or boottime() + delay_s > give_up_at:
                    raise
                self.outages += 1
                log.debug("statement_again", statement=name, error=str(error).strip()[:200])
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, 1.0)


async def written_alone(writer: Writer, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
    """What a statement of many rows, run for this one, answered."""
    return _by_place(await writer.write(name, {**common, **columns([row])}), 1)[0]


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as the arrays that a statement unnests.

    Lists, all of one length within a row, are laid end to end; `of` says whose each item is, by its row's place from 1.
    """
    made: dict[str, list[Any]] = {}
    for key, first in rows[0].items():
        if not isinstance(first, list):
            made[key] = [row[key] for row in rows]
            continue
        made[key] = [item for row in rows for item in row[key]]
        made["of"] = [place for place, row in enumerate(rows, 1) for _ in row[key]]
    return made


def _by_place(answers: Sequence[Row], count: int) -> list[Row | None]:
    found = {answer["place"]: answer for answer in answers}
    return [found.get(place) for place in range(1, count + 1)]
