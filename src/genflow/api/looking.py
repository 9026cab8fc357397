"""One look into the database for all who wait in this process, a few times a second, and none while nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from genflow.loops import cut_off
from genflow.queue.writer import OUTAGE

log = structlog.get_logger()

LOOK_S = 0.25
"""Seconds between two looks."""
AGAIN_S = 1.0
"""Seconds more until the next look after one that failed."""


class Looking:
    """Calls `look` again and again while `wanted`, from each `begin` on. An outage is logged once; life goes on."""

    def __init__(self, name: str, wanted: Callable[[], bool], look: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._wanted = wanted
        self._look = look
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Somebody waits: look at once, unless that goes on already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            await cut_off([self._task])

    async def _run(self) -> None:
        told = False
        while self._wanted():
            try:
                await self._look()
                told = False
            except OUTAGE as error:
                if not told:
                    log.warning("looks_wait_for_the_database", looks=self._name, why=str(error).strip()[:200])
                told = True
                await asyncio.sleep(AGAIN_S)
            except Exception:
                log.exception("look_failed", looks=self._name, next="genflow health")
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(LOOK_S)
