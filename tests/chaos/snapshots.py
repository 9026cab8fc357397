"""A run in which every promise was kept, as a snapshot: success, failure, cancel, two messages, half an upload."""

from __future__ import annotations

from uuid import UUID

from chaos.plan import Wish
from chaos.snapshot import JobRow, Line, OutputRow, Snapshot, SubmitRow, Told
from genflow.jobs import State, SubmitState

GOOD, FAILED, CANCELED, MESSAGE, BAD = (f"{number:08d}-0000-4000-8000-000000000000" for number in range(1, 6))
SIZES = {"output/a.png": 0, "output/b.png": 0, f"input/genflow/{GOOD}/photo.jpg": 0}


def whole() -> Snapshot:
    """The run."""
    wishes = (
        Wish(1, 0.0, "plain", "one"),
        Wish(2, 1.0, "failing", "two"),
        Wish(3, 2.0, "long", "one", cancel="running"),
        Wish(4, 3.0, "message", "one", ids=(UUID(MESSAGE),)),
        Wish(5, 4.0, "bad_message", "two", ids=(UUID(BAD),)),
        Wish(6, 5.0, "torn", "two"),
    )
    told = (
        Told(1.0, 1, "accepted", GOOD),
        Told(4.0, 1, "ended", GOOD, {"status": "succeeded", "outputs": 2}),
        Told(4.1, 1, "downloaded", GOOD, {"output": "o1", "hash": "aa", "listed": "blake3:aa"}),
        Told(4.2, 1, "trespassed", GOOD, {"path": f"/api/v2/jobs/{GOOD}", "status": 404}),
        Told(1.5, 2, "known", FAILED),
        Told(4.0, 2, "ended", FAILED, {"status": "failed", "outputs": 0}),
        Told(2.0, 3, "accepted", CANCELED),
        Told(3.0, 3, "canceled", CANCELED, {"status": "canceling"}),
        Told(3.5, 4, "published", MESSAGE),
        Told(4.5, 5, "published", BAD),
        Told(5.5, 6, "tore"),
    )
    jobs = (
        JobRow(GOOD, "one", 1, State.SUCCEEDED, attempt=1, created_at=1.0, ended_at=3.9),
        JobRow(FAILED, "two", 2, State.FAILED, attempt=1, created_at=1.5, ended_at=3.0, error="node_execution_error"),
        JobRow(CANCELED, "one", 3, State.CANCELED, created_at=2.0, cancel_at=3.0, ended_at=3.4),
        JobRow(MESSAGE, "house", 4, State.SUCCEEDED, attempt=1, created_at=3.6, ended_at=6.0),
        JobRow(BAD, "house", 5, State.FAILED, attempt=1, created_at=4.6, ended_at=6.0, error="invalid_workflow"),
    )
    submits = (
        ran(GOOD, "u1", 1.2, 3.5),
        ran(FAILED, "u2", 1.6, 2.9),
        ran(CANCELED, "u3", 2.1, 3.3, stop_reason="cancel"),
        ran(MESSAGE, "u4", 3.7, 5.8),
        SubmitRow(BAD, 1, "u5", "gpu1", 1, SubmitState.REFUSED, created_at=4.7, ended_at=4.9),
    )
    lines = (
        Line(0.0, "gpu0", "booted"),
        *execution(GOOD, "u1", 1.3, 3.4, "success", a="aa", b="bb"),
        Line(0.0, "gpu1", "booted"),
        *execution(FAILED, "u2", 1.7, 2.0, "IndexError", server="gpu1"),
        *execution(CANCELED, "u3", 2.2, 3.2, "interrupted", server="gpu1"),
        *execution(MESSAGE, "u4", 3.8, 5.0, "success", c="cc"),
    )
    outputs = (
        OutputRow("o1", GOOD, 1, "a.png", "aa", "aa"),
        OutputRow("o2", GOOD, 1, "b.png", "bb", "bb"),
        OutputRow("o3", MESSAGE, 1, "c.png", "cc", "cc"),
    )
    return Snapshot(
        wishes=wishes, told=told, lines=lines, jobs=jobs, submits=submits, outputs=outputs,
        dead_letters=(FAILED, BAD), dead_messages=(BAD,), files={"gpu0": SIZES}, memory={"api0": 90 * 2**20},
        live=((1.0, 3),),
    )  # fmt: skip


def ran(job: str, uuid: str, created: float, ended: float, *, no: int = 1, stop_reason: str = "") -> SubmitRow:
    """A submit that ran."""
    server = "gpu1" if job in (FAILED, CANCELED) else "gpu0"
    return SubmitRow(
        job, no, uuid, server, 1, SubmitState.ENDED, executed=True, stop_reason=stop_reason, created_at=created,
        ended_at=ended,
    )  # fmt: skip


def execution(
    job: str, uuid: str, began: float, ended: float, outcome: str, *, server: str = "gpu0", **files: str
) -> tuple[Line, ...]:
    """A prompt in the books: posted, run, its files written, ended."""
    wrote = (
        Line(ended, server, "wrote", job, uuid, {"kind": "output", "name": f"{name}.png", "hash": hash})
        for name, hash in files.items()
    )
    return (
        Line(began, server, "posted", job, uuid, {"token": 1}),
        Line(began, server, "running", job, uuid),
        *wrote,
        Line(ended, server, "ended", job, uuid, {"outcome": outcome}),
    )
