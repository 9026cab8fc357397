"""What a job is: its states, its steps, and which change of state is allowed.

Pure. The numbers stand in the `jobs` table (`state`, `step`) and never change their meaning.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(IntEnum):
    """The state of a job as the queue keeps it. A terminal state is never left."""

    WAITING = 1
    """In back-off: becomes queued at `run_at`, keeping its place."""
    QUEUED = 2
    """Ready to be claimed."""
    HELD = 3
    """Leased by a worker."""
    SUCCEEDED = 10
    FAILED = 11
    """A dead letter, with its reason."""
    CANCELED = 12
    EXPIRED = 13
    """`start_by` passed before any run."""

    @property
    def terminal(self) -> bool:
        """Whether this state is never left."""
        return self >= State.SUCCEEDED


class Step(IntEnum):
    """The last finished step of an attempt: a checkpoint. Whoever goes on starts after it."""

    NONE = 0
    UPLOAD = 1
    SUBMIT = 2
    WAIT = 3
    DOWNLOAD = 4


class Status(StrEnum):
    """The seven states that the Comfy API v2 shows."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    CANCELING = "canceling"
    CANCELED = "canceled"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether this is how a job ends."""
        return self not in (Status.QUEUED, Status.RUNNING, Status.CANCELING)


class SubmitState(IntEnum):
    """How far one intent to POST a prompt to one server has come. The first three are *open*."""

    INTENT = 1
    ACCEPTED = 2
    EXECUTING = 3
    ENDED = 10
    """ComfyUI finished it: success, error or interruption."""
    REFUSED = 11
    """Never queued."""
    WITHDRAWN = 12
    """Taken back before it ran."""
    LOST = 13
    """Accepted, and now known to nobody."""
    ABANDONED = 14
    """Given up by rule; the server is told to stop it when it comes back."""

    @property
    def open(self) -> bool:
        """Whether the submit may still run or be running."""
        return self < SubmitState.ENDED


class StopReason(StrEnum):
    """Why a run was told to stop; written before the first call that stops it."""

    TIMEOUT = "timeout"
    SILENCE = "silence"
    CANCEL = "cancel"
    HALF_VALID = "half_valid"
    SHUTDOWN = "shutdown"
    NEIGHBOUR = "neighbour"
    """Taken back while pending, for a server that idles; a run that began is kept."""


TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: frozenset({State.QUEUED, State.CANCELED, State.EXPIRED}),
    State.QUEUED: frozenset({State.HELD, State.CANCELED, State.EXPIRED}),
    State.HELD: frozenset({State.WAITING, State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELED, State.EXPIRED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELED: frozenset(),
    State.EXPIRED: frozenset(),
}


def may_become(old: State, new: State) -> bool:
    """Whether a job in `old` may change to `new`."""
    return new in TRANSITIONS[old]


def shown_status(state: State, *, cancel_asked: bool, executing: bool) -> Status:
    """The contract's status of a job.

    `executing` is true from the first run that began and stays true over retries and hand-overs, so that a client
    never sees running go back to queued.
    """
    if state.terminal:
        return Status[state.name]
    if cancel_asked:
        return Status.CANCELING
    return Status.RUNNING if executing else Status.QUEUED
