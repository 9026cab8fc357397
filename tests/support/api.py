"""The real HTTP application on a free port, in this process, over a real database and a real store."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvicorn

from genflow.accounts import Accounts
from genflow.api import create_app
from genflow.postgres.pool import Pool
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.store import Store

LINK_SECRET = b"of the tests' links"


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the signals are the test runner's


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API, read to its end."""

    status: int
    headers: Any
    body: bytes
    json: Any

    @property
    def code(self) -> str:
        """The code of an error in the one envelope that there is."""
        assert set(self.json) == {"error"}
        error = self.json["error"]
        assert set(error) == {"code", "message", "details"}
        assert isinstance(error["message"], str)
        assert error["message"]
        code: str = error["code"]
        return code

    @property
    def details(self) -> Any:
        """What the error tells beside its code."""
        return self.json["error"]["details"]


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one running API."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **request: Any) -> Answer:
        """Send a request, read the whole answer."""
        async with self.session.request(method, self.url + path, **request) as response:
            body = await response.read()
            kind = response.headers.get("Content-Type", "")
            json = await response.json() if kind == "application/json" else None
            assert len(response.headers["X-Comfy-Request-Id"]) == 32
            return Answer(response.status, response.headers, body, json)

    async def get(self, path: str, **request: Any) -> Answer:
        """GET `path`."""
        return await self.ask("GET", path, **request)

    async def post(self, path: str, **request: Any) -> Answer:
        """POST to `path`."""
        return await self.ask("POST", path, **request)


@asynccontextmanager
async def serving(queue: Queue, store: Store, settings: Settings, pool: Pool) -> AsyncIterator[Client]:
    """A client of an API that runs for as long as the context is open."""
    app = create_app(queue, store, settings, pool, link_secret=LINK_SECRET, accounts=Accounts(queue.writer))
    # Named as TCP, for asyncio sends at once on such sockets only: else each answer waits 40 ms for a delayed ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = _Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
    finally:
        server.should_exit = True
        await task
        listener.close()
