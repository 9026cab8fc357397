"""A relay in front of PostgreSQL that a test can cut, so that an outage of the database is one test's own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Relay:
    """Carries connections to the database until `cut`, refuses them until `mend`."""

    def __init__(self, target: str) -> None:
        where = conninfo_to_dict(target)
        self._host, self._port = str(where["host"]), int(where.get("port") or 5432)
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._lost_word: bytes | None = None
        self.refused = asyncio.Event()
        """A connection was refused since the last cut."""
        self.lost = asyncio.Event()
        """An answer was lost, as `lose_the_answer_to` asked."""

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._open = False
        self.refused.clear()
        for writer in self._writers:
            writer.transport.abort()

    def lose_the_answer_to(self, word: bytes) -> None:
        """Let the next message with `word` through, and break its connection in place of the answer."""
        self._lost_word = word
        self.lost.clear()

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
        losing = asyncio.Event()
        try:
            await asyncio.gather(self._up(reader, up_writer, losing), self._down(up_reader, writer, losing))
        finally:
            self._writers -= {writer, up_writer}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        with _until_closed(writer):
            while data := await reader.read(65_536):
                if self._lost_word is not None and self._lost_word in data.lower():
                    self._lost_word = None
                    losing.set()
                writer.write(data)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        with _until_closed(writer):
            while data := await reader.read(65_536):
                if losing.is_set():
                    self.lost.set()
                    return
                writer.write(data)
                await writer.drain()


@contextmanager
def _until_closed(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
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
