"""Peers that misbehave on purpose: a bare TCP server for faults below HTTP, and a web server for odd answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from genflow.comfy import ComfyServer, open_session


@dataclass
class Conversation:
    """One connection as the peer saw it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes = b""
    received: bytes = b""
    read: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the whole body was read."""
    read_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a test that lets the peer read again."""
    reset: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Whether the client's end came as a reset (True) or as a polite close (False)."""

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {key.lower(): value for key, _, value in (line.partition(": ") for line in lines) if key}

    @property
    def size(self) -> int:
        return int(self.headers["content-length"])

    async def read_head(self) -> None:
        self.head = await self.reader.readuntil(b"\r\n\r\n")

    async def read_body(self, size: int | None = None) -> None:
        self.received += await self.reader.readexactly(self.size if size is None else size)
        if len(self.received) == self.size:
            self.read.set()

    async def say(self, status: str, body: bytes, *headers: str, length: int | None = None) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def read_to_the_end(self) -> None:
        try:
            while chunk := await self.reader.read(65_536):
                self.received += chunk
        except ConnectionResetError:
            self.reset.set_result(True)
        else:
            self.reset.set_result(False)


@dataclass
class Peer:
    """A TCP server on a free port whose every connection is handled by `talk`."""

    url: str = ""
    conversations: list[Conversation] = field(default_factory=list)
    met: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def peer(talk: Callable[[Conversation], Awaitable[None]], *, narrow: bool = False) -> AsyncIterator[Peer]:
    """A peer that runs `talk`, then reads on until the client's end. A narrow one takes little that it didn't read."""
    made = Peer()
    talks: set[asyncio.Task[None]] = set()

    async def handle(one: Conversation) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await talk(one)
        await one.read_to_the_end()
        one.abort()

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.conversations.append(Conversation(reader, writer))
        made.met.set()
        talks.add(asyncio.create_task(handle(made.conversations[-1])))

    listening = socket.create_server(("127.0.0.1", 0))
    if narrow:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    server = await asyncio.start_server(meet, sock=listening, limit=1_024 if narrow else 65_536)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        for one in made.conversations:
            one.abort()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[ComfyServer]:
    """A ComfyServer with a session of its own."""
    async with open_session() as session:
        yield ComfyServer("gpu0", url, session)


@dataclass
class Double:
    """A web server that answers what it is told, by "METHOD /path"; all else is aiohttp's own 404."""

    client: ComfyServer
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def knows_jobs_route(self) -> None:
        """Any job is answered with ComfyUI's own 404, unless `answers` says else."""
        self.answers["GET /api/jobs/"] = (404, {"error": "Job not found"})


@contextlib.asynccontextmanager
async def double() -> AsyncIterator[Double]:
    """A Double and a client of it. An answer is (status, JSON value or bytes), or a handler of the request."""
    made: Double

    async def handle(request: web.Request) -> web.StreamResponse:
        asked = f"{request.method} {request.path}"
        made.asked.append(asked)
        answer = made.answers.get(asked)
        if answer is None:
            answer = next(
                (value for key, value in made.answers.items() if key[-1] == "/" and asked.startswith(key)),
                (404, b"404: Not Found"),
            )
        # A handler that parses a form has to read it itself.
        made.bodies.append(b"" if callable(answer) else await request.read())
        if callable(answer):
            response: web.StreamResponse = await answer(request)
            return response
        status, said = answer
        if isinstance(said, bytes):
            return web.Response(status=status, body=said, content_type="text/html")
        return web.json_response(said, status=status, dumps=json.dumps)

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server, client(str(server.make_url(""))) as comfy:
        made = Double(comfy)
        yield made
