"""When a running prompt is asked for next, and when it has taken too long. Pure but for the clock."""

from __future__ import annotations

from genflow.failures import Policy
from genflow.jobs import StopReason
from genflow.protocol import boottime
from genflow.worker.listening import Listener

FIRST_POLL_S = 0.05
NEAR_S = 1.0
"""Seconds between two polls of a young run, and of one without a socket that would tell of its end."""
YOUNG_S = 10.0


class Pace:
    """Polls often at first and more seldom later: every second near the expected end, `longest_s` at most."""

    def __init__(
        self, longest_s: float, policy: Policy, listener: Listener | None, running_for_s: float | None = None
    ) -> None:
        self._longest_s = longest_s
        self._policy = policy
        self._listener = listener
        self._began_at = boottime()
        self._running_since = None if running_for_s is None else self._began_at - running_for_s
        self._next_s = min(FIRST_POLL_S, longest_s)

    def saw_running(self) -> None:
        """The run timeout counts from the first sight of running."""
        self._running_since = self._running_since or boottime()

    def next_poll_s(self) -> float:
        """Seconds until the next poll, unless an event says that the run ended."""
        pause, young = self._next_s, boottime() - self._began_at < YOUNG_S
        told = self._listener is not None and self._listener.last_event_at is not None
        bound = min(self._longest_s, NEAR_S if young or not told else self._longest_s)
        self._next_s = min(bound, max(self._next_s * 2.0, FIRST_POLL_S))
        return min(pause, bound)

    def overdue(self) -> StopReason | None:
        """The time limit that the run broke, if any. Silence counts only on an open socket that told something."""
        if self._running_since is None:
            return None
        now = boottime()
        if now - self._running_since > self._policy.run_timeout_s:
            return StopReason.TIMEOUT
        heard = None if self._listener is None else self._listener.last_event_at
        if heard is not None and now - heard > self._policy.silence_timeout_s:
            return StopReason.SILENCE
        return None
