"""Requests that are held until a job has ended, `?wait=` and `Prefer: wait` alike.

All of them in one process share one look at the database: a thousand waiting clients cost what one costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from genflow.api.errors import invalid_request
from genflow.api.looking import Looking
from genflow.errors import clean_text
from genflow.loops import happens

LONGEST_WAIT_S = 60
"""Most seconds that an answer is held back."""


def wait_of(given: str | None) -> int:
    """Whole seconds that `?wait=` asks for, `LONGEST_WAIT_S` at most; 0 where it is absent.

    GenflowError 400 `invalid_request` for what is no whole number.
    """
    if given is None:
        return 0
    if not (given.isascii() and given.isdecimal() and len(given) <= 6):
        message = f"wait must be a whole number of seconds, {LONGEST_WAIT_S} at most."
        raise invalid_request(message, field="wait", got=clean_text(given, 80))
    return min(LONGEST_WAIT_S, int(given))


class Ends:
    """Tells when jobs have ended. `live` says which of some jobs have not."""

    def __init__(self, live: Callable[[Sequence[UUID]], Awaitable[set[UUID]]]) -> None:
        self._live = live
        self._waiting: dict[UUID, set[asyncio.Event]] = {}
        self._looking = Looking("ends", lambda: bool(self._waiting), self._look)

    async def wait(self, job: UUID, seconds: float) -> None:
        """Return once the job has ended or is gone, or after so many seconds."""
        if seconds <= 0:
            return
        ended = asyncio.Event()
        self._waiting.setdefault(job, set()).add(ended)
        self._looking.begin()
        try:
            await happens(ended, seconds)
        finally:
            events = self._waiting[job]
            events.discard(ended)
            if not events:
                del self._waiting[job]

    async def _look(self) -> None:
        asked = list(self._waiting)
        live = await self._live(asked)
        for job in asked:
            if job not in live:
                for event in self._waiting.get(job, ()):
                    event.set()
