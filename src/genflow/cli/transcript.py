"""What `genflow run` prints: one line for each thing that happens to a job. Pure: told events in, lines out."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from genflow.queue.records import StoredOutput
from genflow.worker.telling import (
    AlreadyThere,
    AttemptFailed,
    DeadLettered,
    Done,
    Overdue,
    Posted,
    SocketLost,
    Told,
)

SHORT = 8
"""Characters of a job's id that tell it apart in a transcript."""


def short(job: UUID) -> str:
    """The short form of a job's id."""
    return str(job)[:SHORT]


def line(told: Told) -> str:
    """The line of one event."""
    job = f"job {short(told.job)}"
    match told:
        case Posted(attempt=attempt, server=server, status=status):
            return f"{job} attempt {attempt} on {server}: POST /prompt {status}"
        case AlreadyThere(attempt=attempt, server=server):
            return f"{job} attempt {attempt} on {server}: already in /history, downloading its outputs"
        case SocketLost(attempt=attempt, server=server):
            return f"{job} attempt {attempt} on {server}: WebSocket lost, reconnecting with the same client id"
        case Overdue(attempt=attempt, server=server, after_s=after_s):
            stop = "POST /interrupt and remove it from the queue"
            return f"{job} attempt {attempt} on {server}: no result after {after_s:g} s, {stop}"
        case AttemptFailed(attempt=attempt, failure=failure, delay_s=delay_s):
            return f"{job}: attempt {attempt} failed, {failure.brief}; retry in {round(delay_s * 1000)} ms"
        case DeadLettered(failure=failure):
            return f"{job}: dead-lettered, {failure.brief}"
        case Done(attempts=attempts, server=server, outputs=outputs):
            files = ", ".join(_file(output) for output in sorted(outputs, key=_place))
            return f"{job}: done on {server} after {attempts} attempt(s), {len(outputs)} file(s): {files}"


def _file(output: StoredOutput) -> str:
    return f"{output.node_id}-{output.name} {output.sha256.hex()[:16]}"


def _place(output: StoredOutput) -> tuple[int, str, str, int]:
    """Outputs by their nodes' numbers; nodes without a number come last."""
    number = int(output.node_id) if output.node_id.isdecimal() else 1 << 62
    return number, output.node_id, output.key, output.index


def started(worker: str, servers: int, attempts: int, timeout_s: float) -> str:
    """The first line."""
    return f"worker {worker}: {servers} GPU(s), up to {attempts} attempts, job timeout {timeout_s:g} s"


def stopped(worker: str) -> str:
    """The line after the last job."""
    return f"worker {worker}: stopped"


def again(job: UUID) -> str:
    """A row whose job has its result already."""
    return f"job {short(job)}: already done, acknowledged without running"


def summary(acknowledged: int, dead: Iterable[tuple[UUID, str]], others: int = 0, unfinished: int = 0) -> list[str]:
    """The last lines: what became of the rows. `others` were canceled or expired."""
    letters = list(dead)
    rest = f", {others} canceled or expired" if others else ""
    rest += f", {unfinished} not finished" if unfinished else ""
    head = f"summary: {acknowledged} acknowledged, {len(letters)} dead-lettered{rest}"
    return [head, *(f"  dead letter {short(job)}: {reason}" for job, reason in letters)]
