"""The relay of the tests really does to a link what it says."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.support.relay import Relay, relayed_port
from tests.support.service import until


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[int, Relay, list[bytes]]]:
    """A server behind a relay that sends back what it gets; what it got."""
    got: list[bytes] = []
    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(end := asyncio.Event())
        try:
            while data := await reader.read(1000):
                got.append(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            end.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with relayed_port(lambda: port) as (through, relay):
            yield through, relay, got
    finally:
        server.close()
        for each in ended:
            await each.wait()
        await server.wait_closed()


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await reader.readexactly(len(data))


async def test_it_carries_and_passes_an_end_on() -> None:
    async with echo() as (port, _, _), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said(reader, writer, b"one") == b"one"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_cut_it_breaks_what_stands_and_refuses_until_it_is_mended() -> None:
    async with echo() as (port, relay, _), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said(reader, writer, b"one") == b"one"
        relay.cut()
        with pytest.raises(OSError, match="reset"):
            assert await reader.read() != b""
        writer.close()
        refused, other = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(OSError, match="reset"):
            assert await refused.read() != b""
        other.close()
        relay.mend()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said(reader, writer, b"two") == b"two"
        writer.close()


async def test_a_black_hole_holds_what_is_sent_and_loses_what_was_given_up() -> None:
    async with echo() as (port, relay, got), asyncio.timeout(10):
        patient = await asyncio.open_connection("127.0.0.1", port)
        hasty = await asyncio.open_connection("127.0.0.1", port)
        for reader, writer in (patient, hasty):
            assert await said(reader, writer, b"one") == b"one"
        relay.black_hole()
        for (_, writer), data in ((patient, b"patient"), (hasty, b"hasty")):
            writer.write(data)
            await writer.drain()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await patient[0].read(1)
        hasty[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hasty[1].transport.abort()
        await asyncio.sleep(0.1)  # the reset is under way
        relay.mend()
        assert await patient[0].readexactly(7) == b"patient"
        assert b"hasty" not in got
        patient[1].close()


async def test_half_closed_the_server_still_hears() -> None:
    async with echo() as (port, relay, got), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await said(reader, writer, b"one") == b"one"
        relay.half_close()
        assert await reader.read() == b""
        writer.write(b"two")
        await until(lambda: b"two" in got, "the server hears")
        writer.close()


async def test_a_delay_is_a_delay() -> None:
    async with echo() as (port, relay, _), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        relay.delay(0.1)
        began = asyncio.get_running_loop().time()
        assert await said(reader, writer, b"one") == b"one"
        assert asyncio.get_running_loop().time() - began >= 0.2
        writer.close()
