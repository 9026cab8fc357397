"""One request on a connection of its own that can be taken back: closing it resets it.

Every call that changes a server goes this way. On a connection with SO_LINGER 0, aborted, bytes that still wait in our
buffers never arrive; so after a timeout only what the network already holds may still reach the server.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from genflow.comfy.access import Access
from genflow.comfy.errors import ServerUnreachable, Withheld

MAX_REPLY_BYTES = 1024 * 1024
_FLUSH_POLL_S = 0.001

Gate = Callable[[], bool]
"""Whether the lease still leaves room: False holds back the rest of a request."""


class NotConnected(ServerUnreachable):
    """The connection failed before a byte could leave."""


@dataclass(frozen=True, slots=True)
class FreshReply:
    """The reply to one request. `whole` is False where the body went on past `MAX_REPLY_BYTES`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


class _Connector(aiohttp.TCPConnector):
    """Hands out its one transport, so that it can be aborted: aiohttp itself would flush it first."""

    def __init__(self) -> None:
        super().__init__(force_close=True, limit=1, socket_factory=_resetting_socket)
        self.transport: asyncio.WriteTransport | None = None

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout) -> Any:
        connection = await super().connect(req, traces, timeout)
        self.transport = connection.transport
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=0)
        return connection

    async def flushed(self) -> None:
        """Wait until the operating system has taken every byte, so that what is written next leaves at once."""
        # A transport has a size to look at and no event to wait for; small bodies never get to the sleep.
        while self.transport is not None and self.transport.get_write_buffer_size():  # noqa: ASYNC110
            await asyncio.sleep(_FLUSH_POLL_S)

    def abort(self) -> None:
        # CPython 3.11.2: a TLS transport that was closed twice forgot its protocol, and has nothing left to abort.
        with suppress(AttributeError):
            if self.transport is not None:
                self.transport.abort()


def _resetting_socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made


class _Body:
    """The chunks of a body, remembering why it broke off: aiohttp hides that behind an error of its own."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.failed: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except Exception as error:
            self.failed = error
            raise


async def send(
    url: str,
    body: bytes,
    *,
    access: Access,
    timeout_s: float,
    gate: Gate | None = None,
) -> FreshReply:
    """POST a JSON body in at most `timeout_s` seconds, everything counted. No retry, no redirect.

    With a gate the last byte waits until all before it has left us and the gate says yes. Raises Withheld,
    NotConnected, ServerUnreachable.
    """
    connector = _Connector()

    async def chunks() -> AsyncIterator[bytes]:
        if len(body) > 1:
            yield body[:-1]
        await connector.flushed()
        if gate is not None and not gate():
            raise Withheld("the lease leaves no room for this call")
        yield body[-1:]

    try:
        return await _exchange(connector, url, _Body(chunks()), len(body), "application/json", access, timeout_s)
    finally:
        await connector.close()


async def stream(
    url: str, chunks: AsyncIterator[bytes], size: int, content_type: str, *, access: Access, timeout_s: float
) -> FreshReply:
    """POST `size` bytes as they come. An error of the chunks themselves is raised as it is.

    Raises NotConnected, ServerUnreachable.
    """
    connector = _Connector()
    try:
        return await _exchange(connector, url, _Body(chunks), size, content_type, access, timeout_s)
    finally:
        await connector.close()


async def _exchange(
    connector: _Connector, url: str, body: _Body, size: int, content_type: str, access: Access, timeout_s: float
) -> FreshReply:
    ours = {"Content-Length": str(size), "Content-Type": content_type, "Accept-Encoding": "identity"}
    session = aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )
    reply: aiohttp.ClientResponse | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reply = await session.post(
                url, data=body, headers={**access.headers, **ours}, ssl=access.ssl, allow_redirects=False
            )
            read, whole = await _read(reply.content)
            return FreshReply(reply.status, reply.headers, read, whole)
    except (aiohttp.ClientError, OSError) as error:
        if body.failed is not None:
            raise body.failed from error
        if connector.transport is None:
            raise NotConnected(f"no connection: {error or type(error).__name__}") from error
        said = f"no whole answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
        raise ServerUnreachable(said or type(error).__name__) from error
    finally:
        connector.abort()
        if reply is not None:
            reply.close()
        await session.close()


async def _read(content: aiohttp.StreamReader) -> tuple[bytes, bool]:
    read = bytearray()
    async for chunk in content.iter_any():
        read += chunk
        if len(read) > MAX_REPLY_BYTES:
            return bytes(read[:MAX_REPLY_BYTES]), False
    return bytes(read), True
