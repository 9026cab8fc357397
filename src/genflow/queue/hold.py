"""The right to work on one job: its token, its deadline, and the two ways of losing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from genflow.protocol import Timing, boottime


class NotHeld(Exception):
    """A fenced write found nothing: the job is no longer this worker's. Stop its tasks, keep and touch nothing."""


class LeaseLost(NotHeld):
    """The lease ran out and the job was taken, or finished, by another."""


class JobCanceled(NotHeld):
    """The job was canceled before anything ran."""


class StartByPassed(Exception):
    """The job's start-by went by before its first run: give it back, it will expire."""


class SlotTaken(Exception):
    """The server has no slot for a new submit: all are in use, another took it just now, or it is quarantined."""


@dataclass(slots=True)
class Hold:
    """A held job. `deadline` is this worker's own end of the lease on `boottime()`, margin taken off, in seconds."""

    job_id: UUID
    token: int
    worker_id: UUID
    timing: Timing
    deadline: float = field(default=0.0)
    lost: bool = field(default=False)

    def renewed(self, asked_at: float) -> None:
        """Move the deadline after a write that was sent at `asked_at` (boottime) and extended the lease."""
        self.deadline = max(self.deadline, asked_at + self.timing.lease_s - self.timing.margin_s)

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether a call that takes at most `seconds` may still change a server under this lease."""
        return not self.lost and boottime() + seconds <= self.deadline
