"""A relay in front of any server that a test can cut, slow, half close or make a black hole: a bad link of its own."""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

CHUNK_BYTES = 65_536


class Relay:
    """Carries connections to where `connect` leads, as well as the link is just now.

    What was sent over a link is lost with it: bytes of a connection that its sender has reset by then never arrive.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open = True
        self._passing = asyncio.Event()
        self._passing.set()
        self._delay_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._deaf: set[asyncio.StreamWriter] = set()
        self._carrying = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._lost_word: bytes | None = None
        self.refused = asyncio.Event()
        """A connection was refused since the last cut."""
        self.lost = asyncio.Event()
        """An answer was lost, as `lose_the_answer_to` asked."""

    # --- what becomes of the link ---

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._open = False
        self.refused.clear()
        for writer in self._writers:
            _reset(writer)

    def black_hole(self) -> None:
        """Let nothing through either way, and tell nobody; connections stand, new ones are taken."""
        self._passing.clear()

    def delay(self, seconds: float) -> None:
        """Carry all that comes from now on so much later, each way."""
        self._delay_s = seconds

    def half_close(self) -> None:
        """End the way back of every connection: clients hear that the server is done, and are carried on."""
        for writer in self._clients - self._deaf:
            self._deaf.add(writer)
            _say_end(writer)

    def lose_the_answer_to(self, word: bytes) -> None:
        """Let the next message with `word` through, and break its connection in place of the answer."""
        self._lost_word = word
        self.lost.clear()

    def mend(self) -> None:
        """Carry connections again, without delay."""
        self._open = True
        self._delay_s = 0.0
        self._passing.set()

    # --- carrying ---

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to its end."""
        self._carrying += 1
        self._idle.clear()
        try:
            if self._open:
                await self._carry(reader, writer)
            else:
                self.refused.set()
                _reset(writer)
            await _gone(writer)
            self._writers.discard(writer)
        finally:
            self._carrying -= 1
            if not self._carrying:
                self._idle.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        up_writer: asyncio.StreamWriter | None = None
        losing = asyncio.Event()
        try:
            await self._passing.wait()
            up_reader, up_writer = await self._connect()
            self._writers.add(up_writer)
            self._clients.add(writer)
            await asyncio.gather(self._up(reader, up_writer, losing), self._down(up_reader, writer, losing))
        except OSError:  # one end is gone or was never there; the other hears of it now
            for each in filter(None, (writer, up_writer)):
                _reset(each)
        finally:
            self._clients.discard(writer)
            self._deaf.discard(writer)
            if up_writer is not None:
                await _gone(up_writer)
                self._writers.discard(up_writer)

    async def end(self) -> None:
        """Break every connection, and wait until none is left."""
        self.mend()  # whoever waits for the link goes on, and
        self.cut()  # to its end
        await self._idle.wait()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        async for data in self._chunks(reader):
            if self._lost_word is not None and self._lost_word in data.lower():
                self._lost_word = None
                losing.set()
            await _write(writer, data)
        _say_end(writer)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        async for data in self._chunks(reader):
            if losing.is_set():
                self.lost.set()
                raise ConnectionAbortedError
            if writer not in self._deaf:
                await _write(writer, data)
        if writer not in self._deaf:
            self._deaf.add(writer)
            _say_end(writer)

    async def _chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """What is sent one way, as it comes through. Raises OSError once the sender has reset the connection."""
        while data := await reader.read(CHUNK_BYTES):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._passing.wait()
            if (fault := reader.exception()) is not None:
                raise fault
            yield data
        await self._passing.wait()


def to_database(conninfo: str) -> Connect:
    """To the PostgreSQL of a conninfo, by TCP or a socket."""
    where = conninfo_to_dict(conninfo)
    host, port = str(where["host"]), int(where.get("port") or 5432)

    async def connect() -> Streams:
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    return connect


@asynccontextmanager
async def relayed(conninfo: str) -> AsyncIterator[tuple[str, Relay]]:
    """A conninfo that leads to the same database through a relay, and the relay."""
    relay = Relay(to_database(conninfo))
    with tempfile.TemporaryDirectory(prefix="relay-", dir="/tmp") as folder:  # short: a socket's path is limited
        server = await asyncio.start_unix_server(relay.serve, Path(folder) / ".s.PGSQL.5432")
        try:
            yield make_conninfo(conninfo, host=folder, port=5432), relay
        finally:
            await _end(server, relay)


@asynccontextmanager
async def relayed_port(target: Callable[[], int]) -> AsyncIterator[tuple[int, Relay]]:
    """A port of this machine that leads to another one, which `target` names at each connection, and the relay."""
    relay = Relay(lambda: asyncio.open_connection("127.0.0.1", target()))
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], relay
    finally:
        await _end(server, relay)


async def _end(server: asyncio.Server, relay: Relay) -> None:
    server.close()
    await relay.end()
    await server.wait_closed()


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.transport.is_closing():
        raise ConnectionResetError
    writer.write(data)
    await writer.drain()


def _say_end(writer: asyncio.StreamWriter) -> None:
    """Nothing more comes this way; the other way stands."""
    if not writer.transport.is_closing():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection: its other end is not told of an end, but that it is gone."""
    connection = None if writer.transport.is_closing() else writer.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        with suppress(OSError, ValueError):  # it was closed this moment
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _gone(writer: asyncio.StreamWriter) -> None:
    """Close a connection once what was written has left, and wait until its socket is closed."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
