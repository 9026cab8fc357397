"""All that is known of a run once it is over: what clients were told, books, rows, files. Values only; no I/O.

Times are seconds of the machine's one wall clock, which Postgres, the servers' books and the clients all read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chaos.plan import Wish
from genflow.jobs import State, SubmitState

SKEW_S = 0.25
"""By so much two times may seem to stand in the wrong order: an event and the line that tells of it are not one."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fault, or something else that happened to a process."""

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told, or did, at a time."""

    at: float
    wish: int
    what: str
    job: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a server's books."""

    at: float
    server: str
    event: str
    prompt: str = ""
    submit: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Execution:
    """A prompt that began to run on a server. Without an end it runs still; `killed` = with its server."""

    server: str
    prompt: str
    submit: str
    began: float
    ended: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the database has it."""

    id: str
    tenant: str
    wish: int | None
    state: State
    attempt: int = 0
    takeovers: int = 0
    resubmits: int = 0
    doubled: int = 0
    created_at: float = 0.0
    cancel_at: float | None = None
    ended_at: float | None = None
    error: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class SubmitRow:
    """A submit as the database has it."""

    job: str
    no: int
    uuid: str
    server: str
    token: int
    state: SubmitState
    attempt: int = 1
    executed: bool = False
    doubtful: bool = False
    stop_reason: str = ""
    created_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class OutputRow:
    """An output that a job has, and what the store holds under its hash: the hash of those bytes, none = nothing."""

    id: str
    job: str
    submit_no: int
    name: str
    hash: str
    stored: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process or the queue came to."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One run, whole."""

    wishes: tuple[Wish, ...] = ()
    told: tuple[Told, ...] = ()
    events: tuple[Event, ...] = ()
    lines: tuple[Line, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    submits: tuple[SubmitRow, ...] = ()
    outputs: tuple[OutputRow, ...] = ()
    late_receipts: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()
    """Job ids, as the view of dead letters has them."""
    dead_messages: tuple[str, ...] = ()
    """Message ids in RabbitMQ's dead-letter queue."""
    messages_left: int = 0
    chores_left: tuple[str, ...] = ()
    queued_left: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Prompts that still stand in a server's queue."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each server, its output and input files by kind and name, with their bytes."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """The most bytes that each process held at once."""
    live: tuple[tuple[float, int], ...] = ()
    """How many jobs were live, now and then."""
    slots: int = 2
    queue_limit: int = 80
    memory_limit: int = 400 * 1024**2
    clients_at_once: int = 20
    """By so many may the queue be over its limit: those that the API lets in at the same time."""
    guarded: bool = False
    """The servers refuse a submit that they have seen: then nothing may run twice unasked."""

    @cached_property
    def trials(self) -> frozenset[str]:
        """Prompts that are of no job: a distrusted server's trial, told by its token, which no claim gives."""
        return frozenset(line.prompt for line in self.lines if line.event == "posted" and line.detail.get("token") == 0)

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        """Every run of a job on every server, in order of its books."""
        found: list[Execution] = []
        for server in sorted({line.server for line in self.lines}):
            found += _executions([line for line in self.lines if line.server == server])
        return tuple(sorted((each for each in found if each.prompt not in self.trials), key=lambda each: each.began))

    @cached_property
    def runs_of(self) -> Mapping[str, list[Execution]]:
        """The executions of each prompt id."""
        runs: dict[str, list[Execution]] = defaultdict(list)
        for each in self.executions:
            runs[each.prompt].append(each)
        return runs

    @cached_property
    def submits_of(self) -> Mapping[str, list[SubmitRow]]:
        """The submits of each job, in order."""
        found: dict[str, list[SubmitRow]] = defaultdict(list)
        for each in sorted(self.submits, key=lambda row: row.no):
            found[each.job].append(each)
        return found

    @cached_property
    def submit(self) -> Mapping[str, SubmitRow]:
        """Submits by UUID."""
        return {each.uuid: each for each in self.submits}

    @cached_property
    def job(self) -> Mapping[str, JobRow]:
        """Jobs by id."""
        return {each.id: each for each in self.jobs}

    @cached_property
    def outputs_of(self) -> Mapping[str, list[OutputRow]]:
        """The outputs of each job."""
        found: dict[str, list[OutputRow]] = defaultdict(list)
        for each in self.outputs:
            found[each.job].append(each)
        return found

    @cached_property
    def wish(self) -> Mapping[int, Wish]:
        """Wishes by number."""
        return {each.no: each for each in self.wishes}

    @cached_property
    def written(self) -> Mapping[str, Mapping[str, str]]:
        """What each submit wrote: file = hash."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for line in self.lines:
            if line.event == "wrote":
                found[line.submit][line.detail["name"]] = line.detail["hash"]
        return found

    @cached_property
    def times(self) -> tuple[float, ...]:
        """When anything at all happened."""
        told = [each.at for each in self.told] + [each.at for each in self.lines]
        return tuple(sorted(told + [each.at for each in self.events]))

    def wish_of(self, job: str) -> Wish | None:
        """The wish that a job came of."""
        row = self.job.get(job)
        return None if row is None or row.wish is None else self.wish.get(row.wish)


def _executions(lines: list[Line]) -> list[Execution]:
    """The runs in one server's books: one at a time, each ended by its own line or by the next boot."""
    found: list[Execution] = []
    running: Line | None = None
    for line in lines:
        if line.event == "running":
            running = line
        elif line.event in ("ended", "killed", "booted") and running is not None:
            outcome = line.detail.get("outcome", "killed")
            found.append(Execution(line.server, running.prompt, running.submit, running.at, line.at, outcome))
            running = None
    if running is not None:
        found.append(Execution(running.server, running.prompt, running.submit, running.at, None, ""))
    return found
