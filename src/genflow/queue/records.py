"""What the queue hands out and takes in, as plain records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from genflow.errors import GenflowError
from genflow.failures import Policy
from genflow.jobs import State, Status, Step, SubmitState, shown_status
from genflow.media import ending_of

KEY_TTL_S = 24 * 3600.0
"""Seconds an idempotency key is remembered (Comfy API v2)."""


class KeyInUse(GenflowError):
    """The idempotency key belongs to a job, or to an uploaded asset, already."""

    def __init__(self, *, job_id: UUID | None = None, asset_id: UUID | None = None) -> None:
        made = "upload" if asset_id is not None else "job"
        does = "look at the asset" if asset_id is not None else "poll the job"
        super().__init__(
            "idempotency_key_reuse",
            f"this Idempotency-Key was used before; {does} it made, or send a new key for a new {made}",
            status=422,
            details={"field": "Idempotency-Key"}
            | {name: str(each) for name, each in (("job_id", job_id), ("asset_id", asset_id)) if each is not None},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to accept. `workflow` is the client's exact text; `assets` are the inputs that it names."""

    id: UUID
    workflow: str
    body_hash: bytes
    policy: Policy
    assets: tuple[UUID, ...] = ()
    params: dict[str, Any] | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    sealed: bytes | None = None
    """What only a worker may open, erased at the job's end."""
    idempotency_key: str | None = None
    start_by_s: float | None = None
    priority: int = 0
    tenant: int = 1


@dataclass(frozen=True, slots=True)
class AssetRecord:
    """A user's file record. `hash` is the BLAKE3 of its bytes, `size` in bytes."""

    id: UUID
    hash: bytes | None
    kind: str
    job_id: UUID | None
    node_id: str | None
    name: str
    type: str
    content_type: str
    size: int
    tags: list[str]
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """An output as a job lists it."""

    id: UUID
    node_id: str
    name: str
    type: str
    content_type: str
    size: int
    hash: str | None
    text: str | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as a client sees it."""

    id: UUID
    state: State
    status: Status
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime
    queue_position: int | None
    progress: dict[str, Any] | None
    outputs: list[OutputRecord]
    error: dict[str, Any] | None
    metadata: dict[str, str]
    params: dict[str, Any] | None
    execution_ms: int | None
    attempts: int
    takeovers: int
    resubmits: int
    doubled: int
    preview_no: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job just claimed. `server_id` is its binding; `since_last_holder_s` the seconds since a former holder's end."""

    job_id: UUID
    token: int
    server_id: int | None
    since_last_holder_s: float | None
    class_id: int = 0
    """What it needs of a server: a number of `classes`."""
    previous_id: int | None = None
    """The server with its inputs, or of its previous attempt, where it takes new work and is not to be avoided."""
    uploaded: bool = False
    """Whether its inputs lie there."""


@dataclass(frozen=True, slots=True)
class SubmitRecord:
    """The newest submit of a job."""

    no: int
    uuid: UUID
    attempt: int
    server_id: int
    boot: UUID | None
    slot: int
    state: SubmitState
    client_id: str | None
    stop_reason: str | None
    entry: dict[str, Any] | None
    ended_ago_s: float | None
    running_for_s: float | None


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input of a job: an asset whose bytes must lie on the server before its prompt is posted."""

    asset_id: UUID
    hash: bytes
    file_path: str
    content_type: str
    size: int

    @property
    def name(self) -> str:
        """Its name on a server: it holds the hash, so that an upload is safe to repeat, and an ending for the nodes."""
        return f"{self.hash.hex()[:32]}{ending_of(self.content_type, self.file_path)}"


def input_folder(job_id: UUID) -> str:
    """The folder, under a server's input folder, that holds this job's inputs alone."""
    return f"genflow/{job_id}"


def input_names(job_id: UUID, inputs: Sequence[InputFile]) -> dict[UUID, str]:
    """For each input asset of a job, what a node is told to load."""
    return {file.asset_id: f"{input_folder(job_id)}/{file.name}" for file in inputs}


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An input that lies on a server already, as of that server's boot."""

    server_id: int
    boot: UUID | None
    name: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All that a holder needs to go on after the job's last checkpoint."""

    job_id: UUID
    step: Step
    attempt: int
    takeovers: int
    resubmits: int
    collects: int
    cancel_asked: bool
    executing: bool
    age_s: float
    """Seconds since the job was accepted, when this was read."""
    server_id: int | None
    workflow: str
    policy: Policy
    sealed: bytes | None
    submit: SubmitRecord | None
    doubtful: frozenset[int]
    """Servers where a submit of this job was closed without its end being seen."""
    uploads: list[UploadRecord]
    inputs: list[InputFile]
    taken_back: int
    """How often a pending prompt of it was taken back for a server that idled."""
    oom_attempts: int
    gone_attempts: int

    @property
    def open_submit(self) -> SubmitRecord | None:
        """The submit that may run or be running, if there is one."""
        return self.submit if self.submit is not None and self.submit.state.open else None


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output whose bytes are in the store, on its way into the job's result."""

    id: UUID
    hash: bytes
    sha256: bytes
    size: int
    node_id: str
    key: str
    index: int
    name: str
    type: str
    content_type: str
    text: str | None = None
    """The whole of a short text, to be shown in the job."""


@dataclass(frozen=True, slots=True)
class LiveNews:
    """What a run tells while it is watched: how far it is, and a new picture from inside it (a JPEG), if any."""

    token: int
    progress: dict[str, Any]
    preview: bytes | None = None
    preview_node: str = ""


@dataclass(frozen=True, slots=True)
class Chore:
    """Work after the fact, tied to one submit."""

    id: int
    kind: str
    server_id: int
    job_id: UUID
    submit_no: int
    submit: UUID
    payload: dict[str, Any]
    tries: int
    token: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A failed job that a RabbitMQ queue is to be told of. `error` and `workflow` are None where the job is gone."""

    id: int
    token: int
    job_id: UUID
    error: dict[str, Any] | None
    workflow: str | None
    metadata: dict[str, str]
    priority: int


def view_of(row: dict[str, Any]) -> JobView:
    """A job's view from the row of job_view.sql."""
    state = State(row["state"])
    return JobView(
        id=row["id"],
        state=state,
        status=shown_status(
            state, cancel_asked=row["cancel_at"] is not None, executing=row["executing_at"] is not None
        ),
        created_at=row["created_at"],
        started_at=row["executing_at"],
        ended_at=row["ended_at"],
        expires_at=row["expires_at"],
        queue_position=row["queue_position"] if row["queue_position"] != 1001 else None,
        # Of a run that failed nothing is going on any more: it waits for its next one.
        progress=row["progress"] if not state.terminal and state is not State.WAITING else None,
        outputs=[output_of(output) for output in row["outputs"]],
        error=row["error"],
        metadata=row["metadata"],
        params=row["params"],
        execution_ms=row["execution_ms"],
        attempts=row["attempt"],
        takeovers=row["takeovers"],
        resubmits=row["resubmits"],
        doubled=row["doubled"],
        preview_no=row["preview_no"],
    )


def new_view(job: NewJob, row: dict[str, Any]) -> JobView:
    """A job just accepted, from the row of enqueue.sql."""
    return JobView(
        id=job.id, state=State.QUEUED, status=Status.QUEUED, created_at=row["created_at"], started_at=None,
        ended_at=None, expires_at=row["expires_at"],
        queue_position=row["queue_position"] if row["queue_position"] != 101 else None,
        progress=None, outputs=[], error=None, metadata=job.metadata, params=job.params, execution_ms=None, attempts=0,
        takeovers=0, resubmits=0, doubled=0, preview_no=0,
    )  # fmt: skip


def output_of(row: dict[str, Any]) -> OutputRecord:
    """An output from its JSON in job_view.sql."""
    return OutputRecord(
        id=UUID(row["id"]),
        node_id=row["node_id"],
        name=row["name"],
        type=row["type"],
        content_type=row["content_type"],
        size=row["size"],
        hash=row["hash"],
        text=row["text"],
        expires_at=datetime.fromisoformat(row["expires_at"]) if row["expires_at"] else None,
    )


def work_of(row: dict[str, Any]) -> Work:
    """A holder's view from the row of load_work.sql."""
    submit = row["submit"]
    return Work(
        job_id=row["id"],
        step=Step(row["step"]),
        attempt=row["attempt"],
        takeovers=row["takeovers"],
        resubmits=row["resubmits"],
        collects=row["collects"],
        cancel_asked=row["cancel_at"] is not None,
        executing=row["executing_at"] is not None,
        age_s=row["age_s"],
        server_id=row["server_id"],
        workflow=row["workflow"],
        policy=Policy.from_json(row["policy"]),
        sealed=None if row["sealed"] is None else bytes(row["sealed"]),
        submit=None
        if submit is None
        else SubmitRecord(
            no=submit["no"],
            uuid=UUID(submit["uuid"]),
            attempt=submit["attempt"],
            server_id=submit["server_id"],
            boot=_uuid(submit["boot"]),
            slot=submit["slot"],
            state=SubmitState(submit["state"]),
            client_id=submit["client_id"],
            stop_reason=submit["stop_reason"],
            entry=submit["entry"],
            ended_ago_s=submit["ended_ago_s"],
            running_for_s=submit["running_for_s"],
        ),
        doubtful=frozenset(row["doubtful"]),
        uploads=[
            UploadRecord(file["server_id"], _uuid(file["boot"]), file["name"], bytes.fromhex(file["hash"]))
            for file in row["uploads"]
        ],
        inputs=inputs_of(row["inputs"]),
        taken_back=row["taken_back"],
        oom_attempts=row["oom_attempts"],
        gone_attempts=row["gone_attempts"],
    )


def inputs_of(rows: Sequence[dict[str, Any]]) -> list[InputFile]:
    """A job's inputs from their JSON in a row such as load_work.sql's; those whose bytes are gone are left out."""
    return [
        InputFile(UUID(row["id"]), bytes.fromhex(row["hash"]), row["name"], row["content_type"], row["size"])
        for row in rows
        if row["hash"] is not None
    ]


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)
