"""The one shape of everything that is done again and again: start, stop, a pause with jitter, errors logged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable

import structlog

log = structlog.get_logger()


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for an event, at most `within_s` seconds; whether it happened.

    Unlike `asyncio.wait_for`, which in Python 3.11 swallows a cancellation that comes together with the event.
    """
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


CANCEL_AGAIN_S = 1.0
"""Seconds that a canceled task has to end before it is canceled again."""


async def cut_off(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel these tasks and wait until the last of them ended, whatever way it did.

    One cancellation is not enough where a library waits with `asyncio.wait_for` (psycopg's pool does): Python 3.11
    may swallow it there, and the task goes on.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)


class Loop:
    """Calls `work` every `interval_s` seconds (± 10 %), or sooner after `wake`. An error is logged; life goes on."""

    def __init__(self, name: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._interval_s = interval_s
        self._work = work
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    def start(self) -> None:
        """Begin, with a first call at once."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    def wake(self) -> None:
        """Call `work` again as soon as may be."""
        self._woken.set()

    async def stop(self) -> None:
        """End, in the middle of `work` if need be."""
        self._ending = True
        if self._task is not None:
            await cut_off([self._task])

    async def end(self, within_s: float) -> None:
        """End once the present call of `work` is over, or cut it off after `within_s` seconds."""
        self._ending = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=within_s)
        await self.stop()

    async def _run(self) -> None:
        while not self._ending:
            self._woken.clear()
            try:
                await self._work()
            except Exception:
                log.exception("loop_failed", loop=self._name, next="genflow status")
            await happens(self._woken, self._interval_s * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load
