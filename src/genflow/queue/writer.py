"""The one way by which the queue's statements reach Postgres.

A statement is one transaction. Every statement of the queue may be sent again after a lost connection: it is fenced by
token, or keyed by an id of its own, so that a second time finds the first. A writer that gathers the statements of many
jobs into one transaction can take this one's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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


class Writer(Protocol):
    """Runs one statement of sql/ by name."""

    outages: int
    """How often a statement met a lost connection and was sent again."""

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows that the statement returned, once it is committed."""
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
        give_up_at = boottime() + self._patience_s
        delay_s = 0.05
        while True:
            try:
                async with self._pool.connection(timeout=5.0) as connection:
                    cursor = await connection.execute(statement(name), params)
                    return await cursor.fetchall() if cursor.description else []
            except OUTAGE as error:
                locked = isinstance(error, psycopg.errors.LockNotAvailable)
                if boottime() + delay_s > give_up_at or (locked and not self._through_locks):
                    raise
                self.outages += 1
                log.debug("statement_again", statement=name, error=str(error).strip()[:200])
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, 1.0)
