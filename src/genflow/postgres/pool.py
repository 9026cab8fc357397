"""The connection pool of a process: bounded in size, in waiting, and in what a stuck statement can hold up.

Connections are autocommit and never prepare by themselves, so that a transaction pooler may stand in between. Before a
connection is handed out its socket is looked at: a server that restarted costs no caller an error.
"""

from __future__ import annotations

import asyncio
import logging
import select
from typing import Any

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from genflow.errors import GenflowError
from genflow.postgres.place import unavailable

log = structlog.get_logger()
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # a line for each try; ours say when it went and came back

Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]

LOCK_TIMEOUT_S = 10.0
IDLE_IN_TRANSACTION_MS = 30_000
MAX_WAITING = 1_000  # callers that wait for a connection; past it psycopg_pool.TooManyRequests
_GONE_AFTER = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Seconds, and the last in milliseconds, until a host that vanished without a word is given up: the system's own two
hours would hold a heartbeat on a dead connection for that long. The connection string may say otherwise."""
_PAUSE_S = 0.5
_RECONNECT_S = 2.0  # then the tries start anew: in a long outage psycopg's pauses would double without a bound


async def open_pool(
    conninfo: str, min_size: int, max_size: int, *, timeout_s: float = 15.0, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> Pool:
    """An open pool of `min_size` to `max_size` connections; a caller waits `timeout_s` seconds for one at most.

    Rows are dicts. Every connection has a `lock_timeout` (10 s unless given; who holds leases takes less than their
    margin) and an `idle_in_transaction_session_timeout` of 30 s.
    Raises GenflowError: `database_unavailable` when no connection comes up within `timeout_s`, `database_unsafe` when
    the server is set to forget what it confirmed (`synchronous_commit = off`).
    """

    async def look(connection: psycopg.AsyncConnection[DictRow]) -> None:
        if _silent(connection):
            return
        try:
            await AsyncConnectionPool.check_connection(connection)
        except psycopg.OperationalError:
            await pool.check()  # the server went away: replace all at once, not one per caller
            raise

    async def configure(connection: psycopg.AsyncConnection[DictRow]) -> None:
        await connection.execute(
            "select set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false)",
            (str(round(lock_timeout_s * 1000)), str(IDLE_IN_TRANSACTION_MS)),
        )

    pool: Pool = AsyncConnectionPool(
        conninfo,
        connection_class=psycopg.AsyncConnection[DictRow],
        kwargs={
            "autocommit": True,
            "prepare_threshold": None,
            "row_factory": dict_row,
            **{name: value for name, value in _GONE_AFTER.items() if name not in conninfo_to_dict(conninfo)},
        },
        min_size=min_size,
        max_size=max_size,
        configure=configure,
        check=look,
        timeout=timeout_s,
        max_waiting=MAX_WAITING,
        reconnect_timeout=_RECONNECT_S,
        reconnect_failed=_Persistence(),
        open=False,
    )
    try:
        await pool.open(wait=True, timeout=timeout_s)
        await _refuse_unsafe(pool)
    except (PoolTimeout, psycopg.OperationalError) as error:
        await pool.close()
        raise unavailable(
            f"no connection to the database within {timeout_s:g} s: is GENFLOW_DATABASE_URL right and the server up?"
        ) from error
    except BaseException:
        await pool.close()
        raise
    return pool


class _Persistence:
    """Keeps a pool trying while the database is away, about once a second, and says once that it went and came back.

    Left alone, a pool that gave up tries again only when somebody new asks: who waits already would wait in vain.
    """

    def __init__(self) -> None:
        self._trying: asyncio.Task[None] | None = None

    async def __call__(self, pool: AsyncConnectionPool[Any]) -> None:
        if self._trying is None or self._trying.done():
            log.error("database_unreachable", pool=pool.name, next="genflow health")
            self._trying = asyncio.create_task(self._try(pool))

    async def _try(self, pool: AsyncConnectionPool[Any]) -> None:
        while not pool.closed:
            try:
                async with pool.connection(timeout=_RECONNECT_S):
                    log.info("database_reachable", pool=pool.name)
                    return
            except (PoolTimeout, PoolClosed, TooManyRequests, psycopg.OperationalError):
                await asyncio.sleep(_PAUSE_S)


def _silent(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether nothing waits on the socket of an idle connection: a server that went away has sent its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


async def _refuse_unsafe(pool: Pool) -> None:
    async with pool.connection() as connection:
        cursor = await connection.execute(
            "select current_setting('synchronous_commit') as commit, current_setting('fsync') as fsync"
        )
        row = await cursor.fetchone()
    if row is None or row["commit"] == "off":
        raise GenflowError(
            "database_unsafe",
            "the database is set to synchronous_commit = off: a job could be lost after its 201. Set it to on for"
            " genflow's role: alter role … set synchronous_commit = on",
            status=503,
            details={"field": "synchronous_commit", "got": "off"},
        )
    if row["fsync"] == "off":
        log.warning("database_without_fsync", meaning="a power cut can lose or corrupt everything")
