"""One held job inside a worker: its lease, what was asked of it, and the only way its steps wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from genflow.loops import happens
from genflow.queue import Hold, LeaseLost


class GivenAway(Exception):
    """The job left this worker in good order: finished, released, or sent on its way."""


@dataclass(slots=True, eq=False)
class JobRun:
    """A job that this worker holds. `wake` ends every wait early: look at the flags then."""

    hold: Hold
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    cancel_asked: bool = False
    leaving: Literal["leave", "interrupt"] | None = None
    """Set at shutdown: hand the run over, or stop it."""

    def ask_cancel(self) -> None:
        """Somebody wants this job canceled."""
        self.cancel_asked = True
        self.wake.set()

    def ask_leave(self, how: Literal["leave", "interrupt"]) -> None:
        """This worker is going away."""
        self.leaving = how
        self.wake.set()

    async def pause(self, seconds: float) -> None:
        """Wait `seconds`, or until something happened. Raises LeaseLost as soon as the lease is known lost."""
        await happens(self.wake, seconds)
        self.wake.clear()
        self.check()

    def check(self) -> None:
        """Raise LeaseLost where another holds the job by now."""
        if self.hold.lost:
            raise LeaseLost(self.hold.job_id)
