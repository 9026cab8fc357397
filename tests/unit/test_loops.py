"""A loop ends when it is told to, whatever comes at the same moment."""

from __future__ import annotations

import asyncio
from contextlib import suppress

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


class Slow:
    """Work that takes until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.done = 0

    async def __call__(self) -> None:
        self.begun.set()
        await self.let_go.wait()
        self.done += 1


async def test_an_end_waits_for_the_present_call_and_lets_no_other_begin() -> None:
    work = Slow()
    loop = Loop("slow", 0.01, work)
    loop.start()
    await work.begun.wait()
    ending = asyncio.create_task(loop.end(30))
    loop.wake()
    done, _ = await asyncio.wait({ending}, timeout=0.05)
    assert not done
    work.let_go.set()
    await ending
    assert work.done == 1


async def test_an_end_cuts_off_what_takes_too_long() -> None:
    work = Slow()
    loop = Loop("slow", 0.01, work)
    loop.start()
    await work.begun.wait()
    await loop.end(0.02)
    work.let_go.set()
    await asyncio.sleep(0)
    assert work.done == 0


async def test_an_end_of_a_resting_loop_calls_nothing() -> None:
    work = Slow()
    work.let_go.set()
    loop = Loop("slow", 600, work)
    loop.start()
    await work.begun.wait()
    await loop.end(30)
    assert work.done == 1


async def test_a_stop_ends_a_loop_whose_work_swallows_a_cancellation() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):  # as asyncio.wait_for of Python 3.11 may do, inside a library
            await asyncio.sleep(60)

    loop = Loop("deaf", 0.01, work)
    loop.start()
    await begun.wait()
    async with asyncio.timeout(10):
        await loop.stop()
