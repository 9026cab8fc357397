"""The choice of the database: `GENFLOW_DATABASE_URL`, else the embedded server under the data folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from genflow.postgres.binaries import MIN_MAJOR
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.place import unavailable

if TYPE_CHECKING:
    from genflow.settings import Settings


@asynccontextmanager
async def database(settings: Settings, *, patience_s: float = 15.0) -> AsyncIterator[str]:
    """The conninfo of a database that takes statements, for as long as the context is open.

    A server named by `settings.database_url` gets `patience_s` seconds to answer (it may be starting beside us);
    without one the embedded server of `settings.data` is started or joined, and left at the end.
    Raises GenflowError `database_unavailable`, saying what to do.
    """
    if settings.database_url:
        await asyncio.to_thread(_wait_for, settings.database_url, patience_s)
        yield settings.database_url
        return
    server = EmbeddedPostgres(settings.data)
    try:
        yield await asyncio.to_thread(server.start)
    finally:
        await asyncio.to_thread(server.stop)


def _wait_for(conninfo: str, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with psycopg.connect(conninfo, autocommit=True, connect_timeout=5) as connection:
                version = connection.info.server_version
            break
        except psycopg.ProgrammingError as error:
            raise unavailable(f"GENFLOW_DATABASE_URL is no PostgreSQL address: {error}") from error
        except psycopg.Error as error:
            if time.monotonic() > deadline:
                raise unavailable(f"the server that GENFLOW_DATABASE_URL names does not answer: {error}") from error
            time.sleep(0.25)
    if version < MIN_MAJOR * 10_000:
        raise unavailable(
            f"the server that GENFLOW_DATABASE_URL names is PostgreSQL {version // 10_000}; {MIN_MAJOR} is the oldest"
        )
