"""A relay in front of PostgreSQL that a test can cut, so that an outage of the database is one test's own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Relay:
    """Carries connections to the database until `cut`, refuses them until `mend`."""

    def __init__(self, target: str) -> None:
        where = conninfo_to_dict(target)
        self._host, self._port = str(where["host"]), int(where.get("port") or 5432)
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.refused = asyncio.Event()
        """A connection was refused since the last cut."""

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._open = False
        self.refused.clear()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Carry connections again."""
        self._open = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to its end."""
        if not self._open:
            self.refused.set()
            writer.transport.abort()
            return
        if self._host.startswith("/"):
            up_reader, up_writer = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, up_writer}
        try:
            await asyncio.gather(_carry(reader, up_writer), _carry(up_reader, writer))
        finally:
            self._writers -= {writer, up_writer}


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def relayed(conninfo: str) -> AsyncIterator[tuple[str, Relay]]:
    """A conninfo that leads to the same database through a relay, and the relay."""
    relay = Relay(conninfo)
    with tempfile.TemporaryDirectory(prefix="relay-", dir="/tmp") as folder:  # short: a socket's path is limited
        server = await asyncio.start_unix_server(relay.serve, Path(folder) / ".s.PGSQL.5432")
        try:
            yield make_conninfo(conninfo, host=folder, port=5432), relay
        finally:
            server.close()
            relay.cut()
            await server.wait_closed()
