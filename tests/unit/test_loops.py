"""A loop ends when it is told to, whatever comes at the same moment."""

from __future__ import annotations

import asyncio

import pytest

from genflow.loops import Loop, happens


@pytest.mark.parametrize("turns", range(5))
async def test_a_stop_that_meets_a_wake_ends_the_loop(turns: int) -> None:
    waits = asyncio.Event()

    async def work() -> None:
        waits.set()

    loop = Loop("test", 60.0, work)
    loop.start()
    await waits.wait()
    await asyncio.sleep(0)
    loop.wake()
    for _ in range(turns):  # the two meet at one of these turns of the event loop
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await loop.stop()


async def test_waiting_for_an_event_has_an_end() -> None:
    event = asyncio.Event()
    assert not await happens(event, 0.01)
    assert not await happens(event, -1.0)
    event.set()
    assert await happens(event, 0.0)
    assert await happens(event, 60.0)
