"""What a worker tells of its jobs as it happens: `genflow run` prints it. Hints only; what is true stands in Postgres.

Servers appear by the name given in the settings, attempts by their number within the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from genflow.failures import Failure
from genflow.queue.records import StoredOutput


@dataclass(frozen=True, slots=True)
class Posted:
    """The server has the prompt, as it said in a reply of this status."""

    job: UUID
    attempt: int
    server: str
    status: int


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The server ended a prompt of this job before: nothing runs again."""

    job: UUID
    attempt: int
    server: str


@dataclass(frozen=True, slots=True)
class SocketLost:
    """The WebSocket of a posted prompt is gone; it is opened again, and polling goes on."""

    job: UUID
    attempt: int
    server: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A time limit passed: the prompt is about to be stopped. `after_s` is the limit in seconds."""

    job: UUID
    attempt: int
    server: str
    after_s: float


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt failed, and the next one comes after `delay_s` seconds."""

    job: UUID
    attempt: int
    server: str
    failure: Failure
    delay_s: float


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The job failed for good."""

    job: UUID
    failure: Failure


@dataclass(frozen=True, slots=True)
class Done:
    """The job's result is committed."""

    job: UUID
    attempts: int
    server: str
    outputs: Sequence[StoredOutput]


Told = Posted | AlreadyThere | SocketLost | Overdue | AttemptFailed | DeadLettered | Done
Teller = Callable[[Told], None]


def silent(told: Told) -> None:
    """Tell nobody."""
