"""The run-once protocol on a page: workers that claim, ask, post, wait, stop and are taken over; servers that forget.

A state is a tuple of tuples, never changed. `steps(state, setup)` yields every event that may come next as
`(label, next state)`; a label that begins with `!` is something nobody may count on. Time is left out: a lease may run
out as soon as its holder is dead, frozen or cut off from the database, and "settle" is over once every POST of the
submit has arrived or is known dead. What breaks a promise leaves its name in `State.broken`.

Section numbers are those of docs/design/protocol.md.
"""

from __future__ import annotations

from genflow.jobs import State as JobState

from . import rows
from .rows import NOWHERE
from .servers import abandon, server_steps
from .state import (
    IDLE,
    LOST,
    Item,
    Setup,
    State,
    Steps,
    Worker,
    lose,
    name_of,
    put,
    set_job,
    set_server,
    set_worker,
    spend,
)
from .workers import claims, replies, work


def steps(s: State, setup: Setup) -> Steps:
    """Every event that may come next."""
    for i, w in enumerate(s.workers):
        if w.at == "idle":
            yield from claims(s, i, setup)
            continue
        yield from _faults(s, i, w, setup)
        if not w.frozen:
            yield from work(s, i, w, setup)
    yield from _network(s, setup)
    for k in range(len(s.servers)):
        yield from server_steps(s, k, setup)
    for j in range(len(s.jobs)):
        yield from _upkeep(s, j, setup)


def _faults(s: State, i: int, w: Worker, setup: Setup) -> Steps:
    """Faults are merged with the end of the lease: until then nothing depends on whether its holder is alive."""
    if w.frozen:
        awake = IDLE if w == LOST else w._replace(frozen=False)
        yield f"! w{i} wakes at '{w.at}'", s._replace(workers=put(s.workers, i, awake))
    job = s.jobs[w.job]
    if w.token != job.token or w == LOST:
        return
    if spent := spend(s, "crashes"):
        dead = spent._replace(workers=put(s.workers, i, IDLE))
        yield f"! w{i} is killed at '{w.at}', its lease runs out", set_job(dead, w.job, rows.rescue(job))
    if not w.late and (spent := spend(s, "freezes")):
        frozen = set_job(spent, w.job, job._replace(expired=True))
        yield f"! w{i} freezes at '{w.at}', its lease runs out", set_worker(frozen, i, frozen=True, late=True)


def _network(s: State, setup: Setup) -> Steps:
    for n, (k, item) in enumerate(s.air):
        away = s._replace(air=s.air[:n] + s.air[n + 1 :])
        server = s.servers[k]
        queued = set_server(away, k, pending=(*server.pending, item))
        yield f"! {name_of(item)} never arrives", away
        if (item.job, item.uid) in server.barred and "guard lets all in" not in setup.broken:
            yield from _refused_by_the_guard(away, item)
            continue
        i = next((i for i, w in enumerate(s.workers) if w.at == "sent" and (w.job, w.uid) == item[:2]), NOWHERE)
        if i == NOWHERE or s.workers[i].frozen:
            yield f"{name_of(item)} arrives late", queued
        else:
            yield f"! {name_of(item)} is queued, nobody is told", queued
            if server.up:
                yield from replies(away, queued, i, name_of(item), setup)
        if setup.gap and not item.stray and (spent := spend(s, "freezes")):
            held = spent._replace(air=put(s.air, n, (k, item._replace(stray=True))))
            yield f"! {name_of(item)} is held back by the network (d)", held


def _refused_by_the_guard(away: State, item: Item) -> Steps:
    """Whoever waits for the answer is no holder any more, or asks now."""
    i = next((i for i, w in enumerate(away.workers) if w.at == "sent" and (w.job, w.uid) == item[:2]), NOWHERE)
    if i == NOWHERE or away.workers[i].frozen:
        yield f"{name_of(item)} is refused by the guard", away
    elif away.workers[i].token != away.jobs[item.job].token:
        yield f"{name_of(item)} is refused by the guard: stale", lose(away, i)
    else:
        yield f"{name_of(item)} is refused by the guard: seen", set_worker(away, i, at="ask settled")


def _upkeep(s: State, j: int, setup: Setup) -> Steps:
    job = s.jobs[j]
    if job.state.terminal:
        return
    if not job.cancel and (spent := spend(s, "cancels")):
        yield f"! job {j} is canceled by its client", set_job(spent, j, rows.cancel(job))
    if job.state is JobState.HELD:
        if job.expired or "taken while leased" in setup.broken:
            yield f"job {j} is taken from its holder", set_job(s, j, rows.rescue(job))
    elif job.bound != NOWHERE and not s.servers[job.bound].up and (job.cancel or s.servers[job.bound].forgotten):
        yield f"job {j} gives up server {job.bound} (c)", abandon(s, j)
