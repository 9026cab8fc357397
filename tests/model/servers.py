"""The model's ComfyUI servers: a queue without deduplication, a history with one entry an id, and outages."""

from __future__ import annotations

from . import rows
from .state import Entry, Item, Server, Setup, State, Steps, name_of, put, set_job, set_server, spend


def delete_entry(s: State, k: int, j: int) -> State:
    return set_server(s, k, history=tuple(e for e in s.servers[k].history if e.job != j))


def unqueue(s: State, k: int, j: int) -> State:
    """POST /queue with delete: one pending prompt of this id is taken out; one that runs is left alone."""
    pending = s.servers[k].pending
    for n, item in enumerate(pending):
        if item.job == j:
            return set_server(s, k, pending=pending[:n] + pending[n + 1 :])
    return s


def stop_prompt(s: State, k: int, j: int) -> State:
    """/api/jobs/ID/cancel: what runs under this id is interrupted, else one pending prompt of it is taken out."""
    server = s.servers[k]
    if any(item.job == j for item in server.running):
        return _run_ends(s, k, "interrupted")
    for n, item in enumerate(server.pending):
        if item.job == j:
            return set_server(s, k, pending=server.pending[:n] + server.pending[n + 1 :])
    return s


def _run_ends(s: State, k: int, outcome: str) -> State:
    server = s.servers[k]
    (item,) = server.running
    history = tuple(e for e in server.history if e.job != item.job)
    return set_server(s, k, running=(), history=tuple(sorted((*history, Entry(item.job, item.uid, outcome)))))


def bar(s: State, k: int, j: int, uid: int) -> State:
    """The guard is told of a submit that is to be taken as never queued."""
    return set_server(s, k, barred=tuple(sorted({*s.servers[k].barred, (j, uid)})))


def server_steps(s: State, k: int, setup: Setup) -> Steps:
    server = s.servers[k]
    if server.pending and not server.running:
        yield f"server {k} starts {name_of(server.pending[0])}", _run_begins(s, k, setup)
    if server.running:
        yield f"server {k} ends {name_of(server.running[0])} well", _run_ends(s, k, "success")
        if spent := spend(s, "bad_runs"):
            yield f"! server {k} ends {name_of(server.running[0])} with an error", _run_ends(spent, k, "error")
    if server.up:
        if server.stops:
            yield f"server {k} is told to stop what was abandoned", _stop_abandoned(s, k)
        if spent := spend(s, "outages"):
            yield f"! server {k} can't be reached", set_server(spent, k, up=False)
        return
    hope = "" if setup.returns else "! "
    yield f"{hope}server {k} comes back as it was", set_server(s, k, up=True, forgotten=False)
    yield f"{hope}server {k} comes back restarted", _restarted(s, k)
    if not setup.returns and not server.forgotten:
        yield f"server {k} is forgotten", set_server(s, k, forgotten=True)


def _run_begins(s: State, k: int, setup: Setup) -> State:
    item, *pending = s.servers[k].pending
    s = set_server(s, k, pending=tuple(pending), running=(item,))
    if item.stray and not setup.guard:
        return s
    if s.jobs[item.job].state.terminal:
        return s._replace(broken="a run began after the job's end")
    if s.ran[item.job]:
        return s._replace(broken="a second run that nothing accounts for")
    return s._replace(ran=put(s.ran, item.job, True))


def _restarted(s: State, k: int) -> State:
    s = s._replace(servers=put(s.servers, k, Server(barred=s.servers[k].barred)))
    for j, job in enumerate(s.jobs):
        if job.open and job.open.server == k:
            job = job._replace(open=job.open._replace(rebooted=True))
            s = set_job(s, j, job)
    return s


def _stop_abandoned(s: State, k: int) -> State:
    for j, uid in s.servers[k].stops:
        if any(x.job == j and x.uid == uid for x in (*s.servers[k].running, *s.servers[k].pending)):
            s = stop_prompt(s, k, j)
    return set_server(s, k, stops=())


def abandon(s: State, j: int) -> State:
    """Give up what is open (or waits to be collected) on a server that can't be reached (section 8 (c))."""
    job = s.jobs[j]
    k = job.bound
    if job.open:
        uid = job.open.uid
        server = s.servers[k]

        def mark(item: Item) -> Item:
            return item._replace(stray=True) if item.job == j and item.uid == uid else item

        s = set_server(s, k, pending=tuple(map(mark, server.pending)), stops=(*server.stops, (j, uid)))
        s = s._replace(air=tuple((x, mark(item)) for x, item in s.air))
    return set_job(s, j, rows.abandon(job))._replace(ran=put(s.ran, j, False))
