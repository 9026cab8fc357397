"""When a server that was in trouble may be trusted with new work again. Pure: the clock is the caller's.

Closed, new work goes there. The first trouble opens it: no new work until a back-off with full jitter is over, whatever
probes say meanwhile. The first answered probe after that is the trial and makes it half-open: one prompt at a time.
`PROOFS` more answered probes without trouble close it; trouble opens it again, for longer. A server that was closed for
as long as the longest back-off starts anew with the shortest. A server that comes and goes is so left alone more and
more, while one that just restarted is back with the first answered probe.

What was posted is followed all the same: for that a server needs to answer its probes, and nothing else.
"""

from __future__ import annotations

import random
from enum import StrEnum

from genflow.backoff import retry_delay

CAP_S = 60.0
"""Longest back-off, in seconds."""
PROOFS = 2
"""Answered probes, after the trial, that close a half-open breaker."""


class Position(StrEnum):
    """How far a server is trusted."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One server's breaker. Times are seconds of one clock that never goes back."""

    def __init__(self, *, base_s: float, cap_s: float = CAP_S, rng: random.Random | None = None) -> None:
        self.position = Position.CLOSED
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng
        self._openings = 0
        self._trial_at = 0.0
        self._proofs = 0
        self._closed_at: float | None = None

    def trouble(self, now: float) -> None:
        """A probe was not answered, or a call found the server away. While open that is known already."""
        if self.position is Position.OPEN:
            return
        if self.position is Position.CLOSED and (self._closed_at is None or now - self._closed_at >= self._cap_s):
            self._openings = 0
        self._openings += 1
        self.position = Position.OPEN
        self._trial_at = now + retry_delay(self._openings, base_s=self._base_s, cap_s=self._cap_s, rng=self._rng)

    def answered(self, now: float) -> None:
        """A probe was answered."""
        if self.position is Position.OPEN and now >= self._trial_at:
            self.position, self._proofs = Position.HALF_OPEN, 0
        elif self.position is Position.HALF_OPEN:
            self._proofs += 1
            if self._proofs >= PROOFS:
                self.position, self._closed_at = Position.CLOSED, now
