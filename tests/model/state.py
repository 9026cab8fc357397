"""What a state of the model is made of, and the small changes that every step is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

from genflow.jobs import State as JobState

from .rows import NOWHERE, Job

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What one exploration is about: how much there is of everything, and what may go wrong how often."""

    jobs: int = 1
    servers: int = 1
    slots: int = 1
    crashes: int = 0
    freezes: int = 0
    """A holder stops past its lease: frozen as a whole, or only cut off from the database."""
    outages: int = 0
    """A server can't be reached; it comes back as it was, or restarted with its memory wiped."""
    cancels: int = 0
    bad_runs: int = 0
    """Runs that end in an error, that the run timeout stops, or that will not be stopped."""
    moves: int = 0
    """Pending prompts that are taken back for a server that idles; none is a fault."""
    returns: bool = True
    """A server that can't be reached comes back in the end; if not, somebody forgets it."""
    gap: bool = False
    """Also freeze between the last check and the call that it was for, and let the network hold bytes for longer than
    settle: the exception of section 8 (d)."""
    guard: bool = False
    """genflow's guard stands at the servers. What `gap` is about is then accounted to nothing: it must not happen."""
    faults: int = 99
    """All of the above together."""
    attempts: int = 2
    broken: frozenset[str] = frozenset()
    """Rules that are left out, to show that the explorer sees it."""


class Worker(NamedTuple):
    """A worker process and the one job it works on."""

    at: str = "idle"
    job: int = NOWHERE
    token: int = 0
    server: int = NOWHERE
    uid: int = NOWHERE
    frozen: bool = False
    late: bool = False
    """Its own deadline D has passed: it must renew before it changes anything (4.2, 4.5)."""


class Item(NamedTuple):
    """A prompt in a server's queue, or a POST still in the air."""

    job: int
    uid: int
    stray: bool = False
    """Its run is accounted to section 8: abandoned (c), or in the air for longer than settle (d)."""


class Entry(NamedTuple):
    """A history entry. There is one for each prompt id: a later one replaces it."""

    job: int
    uid: int
    outcome: str


class Server(NamedTuple):
    """One ComfyUI: a queue without deduplication, one running prompt, a history."""

    up: bool = True
    forgotten: bool = False
    pending: tuple[Item, ...] = ()
    running: tuple[Item, ...] = ()
    history: tuple[Entry, ...] = ()
    stops: tuple[tuple[int, int], ...] = ()
    """Abandoned submits (job, uid), to be stopped before the server gets work."""
    barred: tuple[tuple[int, int], ...] = ()
    """Submits (job, uid) that the guard lets in no more; a restart keeps them."""


class Budget(NamedTuple):
    """What may still go wrong."""

    faults: int
    crashes: int
    freezes: int
    outages: int
    cancels: int
    bad_runs: int
    moves: int


class State(NamedTuple):
    """Everything: the database's rows, the processes, the servers, the network; and what only an onlooker knows."""

    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]
    servers: tuple[Server, ...]
    air: tuple[tuple[int, Item], ...]
    budget: Budget
    ran: tuple[bool, ...]
    """Per job: a run began that no counted exception accounts for."""
    broken: str = ""


Steps = Iterator[tuple[str, State]]
IDLE = Worker()
LOST = Worker("lost", frozen=True)
"""Frozen, and nothing is left for it to do when it wakes but to find that out."""


def start(setup: Setup) -> State:
    """Every job was just accepted."""
    s = setup
    budget = Budget(s.faults, s.crashes, s.freezes, s.outages, s.cancels, s.bad_runs, s.moves)
    jobs = (Job(),) * s.jobs
    return State(jobs, (IDLE, IDLE), (Server(),) * s.servers, (), budget, (False,) * s.jobs)


def put(items: tuple[T, ...], k: int, item: T) -> tuple[T, ...]:
    return (*items[:k], item, *items[k + 1 :])


@cache
def _less(budget: Budget, what: str) -> Budget | None:
    left = getattr(budget, what)
    if what == "moves":
        return budget._replace(moves=left - 1) if left else None
    return budget._replace(**{what: left - 1, "faults": budget.faults - 1}) if left and budget.faults else None


def spend(s: State, what: str) -> State | None:
    less = _less(s.budget, what)
    return less and s._replace(budget=less)


def set_worker(s: State, i: int, **changes: Any) -> State:
    return s._replace(workers=put(s.workers, i, s.workers[i]._replace(**changes)))


def set_job(s: State, j: int, job: Job) -> State:
    old = s.jobs[j]
    if old.cancel and job.state is JobState.SUCCEEDED:
        s = s._replace(broken="a canceled job succeeded")
    return s._replace(jobs=put(s.jobs, j, job))


def set_server(s: State, k: int, **changes: Any) -> State:
    return s._replace(servers=put(s.servers, k, s.servers[k]._replace(**changes)))


def write(s: State, i: int, row: Job | None, at: str = "idle", *, counted: bool = False, **changes: Any) -> State:
    """A fenced transaction of worker `i`: no row means that it keeps nothing and touches nothing more (3.1)."""
    w = s.workers[i]
    if row is None:
        return s._replace(workers=put(s.workers, i, IDLE))
    if w.token != s.jobs[w.job].token:
        s = s._replace(broken="a write by a holder whose token is stale")
    s = set_job(s, w.job, row)
    if counted:
        s = s._replace(ran=put(s.ran, w.job, False))
    if row.state is not JobState.HELD:
        return s._replace(workers=put(s.workers, i, IDLE))
    return set_worker(s, i, at=at, token=row.token, **changes)


def lose(s: State, i: int) -> State:
    return s._replace(workers=put(s.workers, i, IDLE))


def new_uid(s: State, j: int) -> int:
    """The smallest number that nothing of this job carries any more."""
    used = {w.uid for w in s.workers if w.job == j} | {item.uid for _, item in s.air if item.job == j}
    for server in s.servers:
        used.update(item.uid for item in (*server.pending, *server.running) if item.job == j)
        used.update(entry.uid for entry in server.history if entry.job == j)
        used.update(uid for job, uid in (*server.stops, *server.barred) if job == j)
    return next(uid for uid in range(99) if uid not in used)


def name_of(item: Item) -> str:
    return f"submit {item.uid} of job {item.job}"
