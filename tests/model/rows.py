"""The job's row as a state machine: one pure function for each transaction that changes it.

The explorer (`model.py`) and the test of the real queue (`test_queue_follows_the_model.py`) use the same functions. A
function returns the row after the commit, or None where the fence let no row through: the lease was lost, or the job
was canceled.
"""

from __future__ import annotations

from typing import NamedTuple

from genflow.jobs import State, SubmitState, may_become

NOWHERE = -1
NEIGHBOUR = "neighbour"
"""The reason of a take-back: the prompt goes to a server that idles, unless it began."""


class Submit(NamedTuple):
    """The open submit of a job (docs/design/protocol.md, section 1)."""

    uid: int
    server: int
    slot: int
    state: SubmitState = SubmitState.INTENT
    rebooted: bool = False
    """The server's boot marker is no longer the one that was written down with the intent."""
    stop: str = ""
    """The `stop_reason`, written before the first call that stops the run."""


class Job(NamedTuple):
    """A row of `jobs` together with its open row of `submits`."""

    state: State = State.QUEUED
    token: int = 0
    expired: bool = False
    """The lease ran out by the database's clock."""
    cancel: bool = False
    """`cancel_at` is set."""
    spent: int = 0
    """Attempts spent."""
    open: Submit | None = None
    collecting: int = NOWHERE
    """The server whose successful run is kept in a checkpoint and waits for its download."""
    doubt: int = 0
    """Bit k: an earlier submit to server k was closed without anyone having seen its end."""
    began: bool = False
    """`executing_at` is set. The explorer leaves `running` out: nothing that it looks at depends on it."""

    @property
    def bound(self) -> int:
        """The only server whose workers may claim the job, or NOWHERE."""
        return self.open.server if self.open else self.collecting


def ended(job: Job, state: State) -> Job:
    """A terminal row. Its token grows, so that every fence that is still about finds nothing."""
    if not may_become(job.state, state):
        raise AssertionError(f"{job.state.name} became {state.name}")
    return Job(state=state, token=job.token + 1, spent=job.spent, began=job.began)


def _given_away(job: Job, state: State) -> Job:
    """A row without a holder. A cancel on record and nothing left to stop: it ends instead."""
    if job.cancel and not job.open:
        return ended(job, State.CANCELED)
    return job._replace(state=state, token=job.token + 1, expired=False)


def claim(job: Job) -> Job:
    """Lease a queued job to a worker."""
    return job._replace(state=State.HELD, token=job.token + 1, expired=False)


def due(job: Job) -> Job:
    """The back-off is over."""
    return job._replace(state=State.QUEUED)


def rescue(job: Job) -> Job:
    """Take a job whose lease ran out away from its holder."""
    return _given_away(job, State.QUEUED)


def expire(job: Job) -> Job:
    """`start_by` passed: ends what nobody holds, has nothing open and never ran."""
    if job.state not in (State.QUEUED, State.WAITING) or job.open or job.began:
        return job
    return ended(job, State.EXPIRED)


def cancel(job: Job) -> Job:
    """Linearised at the intent: nothing open, and the job ends at once; else the holder is asked to stop it."""
    if job.state.terminal:
        return job
    return job._replace(cancel=True) if job.open else ended(job, State.CANCELED)


# Fenced: None where the token is stale.


def renew(job: Job, token: int) -> Job | None:
    """Lengthen a lease, also one that ran out and was not taken."""
    return job._replace(expired=False) if job.token == token else None


def intent(job: Job, token: int, submit: Submit) -> Job | None:
    """Write the submit down before anything leaves."""
    if job.token != token or job.cancel:
        return None
    return job._replace(open=submit, collecting=NOWHERE, expired=False)


def receipt(job: Job, token: int) -> Job | None:
    """The server has the prompt; the row that comes back tells whether a cancel was asked."""
    if job.token != token or job.open is None:
        return None
    return job._replace(open=job.open._replace(state=max(job.open.state, SubmitState.ACCEPTED)), expired=False)


def running(job: Job, token: int) -> Job | None:
    """The prompt was seen running."""
    if job.token != token or job.open is None:
        return None
    return job._replace(open=job.open._replace(state=SubmitState.EXECUTING), began=True, expired=False)


def stopping(job: Job, token: int, reason: str) -> Job | None:
    """Write down why the run is about to be stopped; the first reason stays, but a take-back gives way."""
    if job.token != token or job.open is None:
        return None
    stop = reason if job.open.stop in ("", NEIGHBOUR) else job.open.stop
    return job._replace(open=job.open._replace(stop=stop), expired=False)


def keep_here(job: Job, token: int) -> Job | None:
    """The prompt began before it could be taken back: it stays where it is."""
    if job.token != token or job.open is None:
        return None
    stop = "" if job.open.stop == NEIGHBOUR else job.open.stop
    return job._replace(open=job.open._replace(stop=stop), expired=False)


def collect(job: Job, token: int) -> Job | None:
    """The checkpoint of the step `wait`: the run ended well, its outputs are known, its slot is free."""
    if job.token != token or job.open is None:
        return None
    return job._replace(collecting=job.open.server, open=None, spent=job.spent + 1, began=True, expired=False)


def close(job: Job, token: int, *, doubtful: bool) -> Job | None:
    """End the open submit without a run; the lease stays."""
    if job.token != token or job.open is None:
        return None
    return job._replace(open=None, doubt=_doubt(job, doubtful), expired=False)


def end_attempt(job: Job, token: int, state: State, *, spend: bool, doubtful: bool = False) -> Job | None:
    """End the attempt without a result, its submit with it, in one transaction. A cancel on record wins."""
    if job.token != token:
        return None
    spent = job.spent + (spend and job.open is not None)
    job = job._replace(open=None, collecting=NOWHERE, spent=spent, doubt=_doubt(job, doubtful))
    return _given_away(job, state) if job.cancel or not state.terminal else ended(job, state)


def release(job: Job, token: int, state: State = State.QUEUED) -> Job | None:
    """Give the job back without judging it; what is open stays open, and binds it."""
    return _given_away(job, state) if job.token == token else None


def finish(job: Job, token: int) -> Job | None:
    """The last transaction. A cancel that came first wins."""
    if job.token != token:
        return None
    return ended(job, State.CANCELED if job.cancel else State.SUCCEEDED)


def abandon(job: Job) -> Job:
    """Give up a submit that nobody holds: the job goes elsewhere, or ends canceled where that was asked."""
    return _given_away(job._replace(open=None, collecting=NOWHERE, doubt=_doubt(job, True)), State.QUEUED)


def _doubt(job: Job, doubtful: bool) -> int:
    return job.doubt | (doubtful and 1 << job.bound)
