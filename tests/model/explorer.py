"""Explore every state of the model, breadth first, and say what was found.

Workers, servers and jobs are interchangeable, so a state is put into one fixed order before it is looked up. Each part
of a state is kept once and a state is a row of small numbers: sound, and small enough for a million states.
"""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .model import steps
from .rows import NOWHERE, Job
from .state import IDLE, LOST, Budget, Item, Server, Setup, State, Worker, start


def _order_of_jobs(s: State) -> State:
    if len(s.jobs) == 1 or _job_key(s, 0) <= _job_key(s, 1):
        return s
    swap = {0: 1, 1: 0, NOWHERE: NOWHERE}

    def item(x: Any) -> Any:
        return x._replace(job=swap[x.job])

    servers = tuple(
        x._replace(
            pending=tuple(map(item, x.pending)),
            running=tuple(map(item, x.running)),
            history=tuple(sorted(map(item, x.history))),
            stops=tuple(sorted((swap[j], uid) for j, uid in x.stops)),
            barred=tuple(sorted((swap[j], uid) for j, uid in x.barred)),
        )
        for x in s.servers
    )
    return s._replace(
        jobs=s.jobs[::-1],
        ran=s.ran[::-1],
        workers=tuple(map(item, s.workers)),
        servers=servers,
        air=tuple(sorted((k, item(x)) for k, x in s.air)),
    )


def _job_key(s: State, j: int) -> tuple[Any, ...]:
    job = s.jobs[j]
    return (
        job._replace(open=None, token=0)[:5],
        job.collecting,
        job.doubt,
        job.open or (),
        s.ran[j],
        sorted(w._replace(job=0) for w in s.workers if w.job == j),
    )


def _order_of_servers(s: State) -> State:
    if len(s.servers) == 1 or s.servers[0] < s.servers[1]:
        return s
    if s.servers[0] == s.servers[1] and _server_key(s, 0) <= _server_key(s, 1):
        return s
    swap = {0: 1, 1: 0, NOWHERE: NOWHERE}

    def job(x: Job) -> Job:
        return x._replace(
            open=x.open and x.open._replace(server=swap[x.open.server]),
            collecting=swap[x.collecting],
            doubt=(x.doubt & 1) << 1 | x.doubt >> 1,
        )

    return s._replace(
        servers=s.servers[::-1],
        jobs=tuple(map(job, s.jobs)),
        workers=tuple(w._replace(server=swap[w.server]) for w in s.workers),
        air=tuple((swap[k], x) for k, x in s.air),
    )


def _server_key(s: State, k: int) -> tuple[Any, ...]:
    return (
        [(j.bound == k, j.doubt >> k & 1) for j in s.jobs],
        [w.server == k for w in s.workers],
        [x for server, x in s.air if server == k],
    )


_MATTERS = ("idle", "lost", "checked", "post", "sent")
_NOTHING = Budget(0, 0, 0, 0, 0, 0, 0)


def _worker_of(s: State, w: Worker) -> Worker:
    """Past its deadline and without the lease a worker can only find that out: where it stood no longer matters."""
    if w.late and s.jobs[w.job].token != w.token and ">" not in w.at and w.at not in _MATTERS:
        return LOST if w.frozen else IDLE
    return w


def _token_of(s: State, w: Worker) -> Worker:
    return w._replace(token=int(w.token == s.jobs[w.job].token)) if w.job != NOWHERE else w


def _bars_that_matter(
    jobs: tuple[Job, ...],
    workers: tuple[Worker, ...],
    servers: tuple[Server, ...],
    air: tuple[tuple[int, Item], ...],
) -> tuple[Server, ...]:
    """A bar against a submit that nothing carries any more can be forgotten: its number may be used again."""
    carried = {(w.job, w.uid) for w in workers} | {(x.job, x.uid) for _, x in air}
    carried |= {(j, job.open.uid) for j, job in enumerate(jobs) if job.open}
    return tuple([x._replace(barred=tuple([b for b in x.barred if b in carried])) for x in servers])


def canonical(s: State) -> State:
    """The one state that stands for all that differ only in names, or in what can't matter any more."""
    jobs, workers, servers, air, budget, ran, broken = s
    workers = tuple([_worker_of(s, w) for w in workers])
    if any([job.token != 1 for job in jobs]):
        workers = tuple([_token_of(s, w) for w in workers])
        jobs = tuple([Job(job.state, 1) if job.state.terminal else job._replace(token=1) for job in jobs])
    over = [job.state.terminal for job in jobs]
    if any(over):
        ran = tuple([before and not end for before, end in zip(ran, over, strict=True)])
        servers = tuple([x._replace(history=tuple([e for e in x.history if not over[e.job]])) for x in servers])
        if all(over):
            budget = _NOTHING
            workers = tuple([w if w.frozen or w.at == "checked" or ">" in w.at else IDLE for w in workers])
            servers = tuple([x._replace(up=True, forgotten=False) for x in servers])
    if any([x.barred for x in servers]):
        servers = _bars_that_matter(jobs, workers, servers, air)
    s = State(jobs, workers, servers, air, budget, ran, broken)
    s = _order_of_servers(_order_of_jobs(s))
    workers, air = s.workers, s.air
    if workers[0] > workers[1]:
        workers = workers[::-1]
    return State(s.jobs, workers, s.servers, tuple(sorted(air)), budget, s.ran, broken)


@dataclass
class Report:
    """What an exploration found."""

    states: int
    transitions: int
    depth: int
    seconds: float
    """Of processor time: how busy the machine is otherwise doesn't matter."""
    broken: str = ""
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = (
            f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, {self.seconds:.1f} s of CPU"
        )
        if self.broken:
            text += f"\nBROKEN: {self.broken}\n  " + "\n  ".join(self.trace)
        return text


def violated(s: State) -> str:
    """What must hold in every state, whatever led to it."""
    if s.broken:
        return s.broken
    slots = [(job.open.server, job.open.slot) for job in s.jobs if job.open]
    if len(slots) != len(set(slots)):
        return "two open submits in one slot of a server"
    for j, job in enumerate(s.jobs):
        holders = sum(w.job == j and w.token == job.token and w.at != "idle" for w in s.workers)
        if holders > 1:
            return "two holders of one job"
        if job.state.terminal and job.open:
            return "a job ended with an open submit"
    return ""


class Explorer:
    """One exploration; the states are kept so that the way to any of them can be told."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._parts: dict[Any, int] = {}
        self._kept: list[Any] = []
        self._index: dict[tuple[int, ...], int] = {}
        self._codes: list[tuple[int, ...]] = []
        self._parent, self._ends = array("i"), array("i")
        self._source, self._target = array("i"), array("i")

    def run(self) -> Report:
        """Every reachable state; stops at the first one that breaks a promise."""
        gc.disable()  # nothing here is ever garbage, and looking for it costs a third of the time
        try:
            return self._run(time.process_time())
        finally:
            gc.enable()

    def _run(self, began: float) -> Report:
        transitions = depth = 0
        self._find(start(self.setup), -1)
        level_end, n = 1, 0
        while n < len(self._codes):
            if n == level_end:
                depth, level_end = depth + 1, len(self._codes)
            known = len(self._codes)
            for label, after in steps(self._state(n), self.setup):
                transitions += 1
                m = self._find(after, n)
                if label[0] != "!":
                    self._source.append(n)
                    self._target.append(m)
            for m in range(known, len(self._codes)):
                if broken := violated(self._state(m)):
                    return self._report(transitions, depth, began, broken, m)
            n += 1
        stuck = self._stuck()
        broken = "" if stuck is None else "from here no end can be reached"
        return self._report(transitions, depth, began, broken, stuck or 0)

    def _find(self, raw: State, parent: int) -> int:
        """The number of the state that stands for this one. Most are met again and again, just as they are."""
        code = tuple(map(self._part, raw))
        n = self._index.get(code)
        if n is None:
            s = canonical(raw)
            fixed = tuple(map(self._part, s))
            n = self._index.get(fixed)
            if n is None:
                n = self._index[fixed] = len(self._codes)
                self._codes.append(fixed)
                self._parent.append(parent)
                if all([job.state.terminal for job in s.jobs]):
                    self._ends.append(n)
            self._index[code] = n
        return n

    def _part(self, part: Any) -> int:
        n = self._parts.get(part)
        if n is None:
            n = self._parts[part] = len(self._kept)
            self._kept.append(part)
        return n

    def _state(self, n: int) -> State:
        return State(*(self._kept[part] for part in self._codes[n]))

    def _stuck(self) -> int | None:
        """A state from which no way leads to the end of every job on which nothing more goes wrong."""
        size = len(self._codes)
        first = array("i", bytes(4 * (size + 1)))
        for m in self._target:
            first[m + 1] += 1
        for m in range(size):
            first[m + 1] += first[m]
        fill, back = array("i", first), array("i", bytes(4 * len(self._target)))
        for n, m in zip(self._source, self._target, strict=True):
            back[fill[m]] = n
            fill[m] += 1
        good = bytearray(size)
        todo = list(self._ends)
        for n in todo:
            good[n] = 1
        while todo:
            m = todo.pop()
            for n in back[first[m] : first[m + 1]]:
                if not good[n]:
                    good[n] = 1
                    todo.append(n)
        bad = good.find(0)
        return None if bad < 0 else bad

    def _report(self, transitions: int, depth: int, began: float, broken: str, at: int) -> Report:
        seconds = time.process_time() - began
        return Report(len(self._codes), transitions, depth, seconds, broken, self._trace(at) if broken else [])

    def _trace(self, n: int) -> list[str]:
        way = [n]
        while self._parent[way[-1]] >= 0:
            way.append(self._parent[way[-1]])
        way.reverse()
        lines = []
        for a, b in pairwise(way):
            target = self._state(b)
            label = next(label for label, after in steps(self._state(a), self.setup) if canonical(after) == target)
            lines.append(label)
        return [*lines, f"=> {self._state(n)}"]
