"""The model's workers: what the holder of a job asks, writes and sends (docs/design/protocol.md, sections 5 and 6)."""

from __future__ import annotations

from genflow.jobs import State as JobState
from genflow.jobs import SubmitState

from . import rows
from .rows import NOWHERE, Job, Submit
from .servers import abandon, bar, delete_entry, stop_prompt, unqueue
from .state import Item, Setup, State, Steps, Worker, lose, new_uid, put, set_job, set_worker, spend, write


def _ask(s: State, w: Worker, setup: Setup) -> tuple[str, str]:
    """What the server says of this submit (section 2).

    An ended entry hides what is open under its id, so a submit whose POST may have left looks behind it into /queue;
    only one whose POST has not begun deals with what an earlier submit left there.
    """
    server, fresh = s.servers[w.server], w.at == "ask fresh"
    entry = next((e for e in server.history if e.job == w.job), None)
    if entry and (entry.uid == w.uid or "identity by prompt id" in setup.broken):
        return "ended", entry.outcome
    if entry and (fresh or "entry hides the queue" in setup.broken):
        return "earlier ended", entry.outcome
    found = [item for item in (*server.running, *server.pending) if item.job == w.job]
    mine = next((item for item in found if item.uid == w.uid), None)
    if mine:
        return "mine", "running" if mine in server.running else "pending"
    if not found or entry or (not fresh and s.jobs[w.job].doubt >> w.server & 1):
        return "unknown", entry.outcome if entry else ""
    if s.jobs[w.job].doubt >> w.server & 1:
        return "earlier open", ""
    return "mine", "of another submit"


def _settled(s: State, w: Worker, setup: Setup) -> bool:
    """No POST of this submit can still arrive, save for section 8 (d)."""
    if "no settle" in setup.broken:
        return True
    in_air = any(item.job == w.job and item.uid == w.uid and not item.stray for _, item in s.air)
    leaving = any(x.at == "checked" and x.job == w.job and x.uid == w.uid and not x.frozen for x in s.workers)
    return not in_air and not leaving


def claims(s: State, i: int, setup: Setup) -> Steps:
    for j, job in enumerate(s.jobs):
        if job.state is not JobState.QUEUED:
            continue
        row = rows.claim(job)
        if job.bound == NOWHERE or "binding ignored" in setup.broken:
            choice = [k for k, server in enumerate(s.servers) if server.up and not server.stops]
        else:
            choice = [job.bound] if s.servers[job.bound].up else []
        for k in choice:
            if job.open:
                stopping = "take" if job.open.stop == rows.NEIGHBOUR else "stop"
                at, uid = (stopping if job.open.stop else "ask recovered"), job.open.uid
                if "takeover posts again" in setup.broken:
                    at = "post"
            elif job.collecting != NOWHERE:
                at, uid = "collect", NOWHERE
            else:
                if sum(x.open is not None and x.open.server == k for x in s.jobs) >= setup.slots:
                    continue
                at, uid = "claimed", NOWHERE
            worker = Worker(at, j, row.token, k, uid)
            yield f"w{i} claims job {j} for server {k}", set_job(s._replace(workers=put(s.workers, i, worker)), j, row)


def work(s: State, i: int, w: Worker, setup: Setup) -> Steps:
    """What the holder does next (section 5 and 6)."""
    job = s.jobs[w.job]
    if w.at == "checked":
        yield f"w{i} POSTs submit {w.uid}{' (d)' if w.late else ''}", _post(s, i, w, setup)
    elif ">" in w.at:
        call, at = w.at.split(">")
        yield f"w{i} calls {call}", _call(s, i, call, at)
    elif w.late and not (w.at == "post" and "margin not checked" in setup.broken):
        row = rows.renew(job, w.token)
        yield f"w{i} renews its lease", write(s, i, row, w.at, late=False)
        if w.at == "post":
            yield f"w{i} renews its lease, after more than settle", write(s, i, row, "ask fresh", late=False)
    elif w.at == "claimed" and job.cancel:
        yield f"w{i} has a cancel and nothing to stop", write(s, i, rows.release(job, w.token))
    elif w.at == "claimed":
        taken = {x.open.slot for x in s.jobs if x.open and x.open.server == w.server}
        free = [slot for slot in range(setup.slots) if slot not in taken]
        if "slot not unique" in setup.broken:
            free = [0]
        if free:
            uid = new_uid(s, w.job)
            row = rows.intent(job, w.token, Submit(uid, w.server, free[0]))
            at = "post" if "no ask" in setup.broken else "ask fresh"
            yield f"w{i} writes the intent of submit {uid}", write(s, i, row, at, uid=uid)
        else:
            yield f"w{i} finds the slot taken, releases", write(s, i, rows.release(job, w.token))
        yield f"! w{i} hands over", write(s, i, rows.release(job, w.token))
    elif w.at.startswith("ask"):
        yield from _asks(s, i, w, setup)
    elif w.at == "post":
        if setup.gap:
            yield f"w{i} passes the last check", set_worker(s, i, at="checked")
        elif s.servers[w.server].up:
            yield f"w{i} checks, POSTs submit {w.uid}", _post(s, i, w, setup)
        else:
            yield f"w{i} can't connect", _unbound(s, i, doubtful=False)
    elif w.at == "sent":
        yield f"w{i} gets no answer in time", set_worker(s, i, at="ask doubt")
        if "release while a POST is in the air" in setup.broken:
            yield f"w{i} hands over", _unbound(s, i, doubtful=False)
    elif w.at in ("wait", "stop", "take"):
        yield from _waits(s, i, w, setup)
    elif w.at == "collect":
        if s.servers[w.server].up:
            row = rows.finish(job, w.token)
            if "finish ignores the cancel" in setup.broken and row:
                row = rows.ended(job, JobState.SUCCEEDED)
            yield f"w{i} has the outputs, finishes", write(s, i, row)
        else:
            yield from _cannot_tell(s, i, w)


def _asks(s: State, i: int, w: Worker, setup: Setup) -> Steps:
    """Section 5.3."""
    job, fresh = s.jobs[w.job], w.at == "ask fresh"
    if not s.servers[w.server].up:
        if fresh:
            yield f"w{i} can't tell, withdraws submit {w.uid}", _unbound(s, i, doubtful=False)
        else:
            yield from _cannot_tell(s, i, w)
        return
    if w.token != job.token or job.open is None:
        yield f"w{i} finds its lease lost", lose(s, i)
        return
    answer, detail = _ask(s, w, setup)
    if answer == "mine":
        if detail == "of another submit":
            s = s._replace(broken="another submit's prompt was taken for this one's")
        yield f"w{i} finds submit {w.uid} {detail}", write(s, i, rows.receipt(job, w.token), "wait")
    elif answer == "ended":
        yield from _ended(s, i, w, detail, setup)
    elif answer == "earlier ended":
        if detail == "success":
            row = rows.collect(job, w.token)
            yield f"w{i} adopts an earlier success", write(s, i, row, "collect")
        elif "earlier entry not deleted" in setup.broken:
            yield f"w{i} prepares its POST", set_worker(s, i, at="post")
        else:
            yield f"w{i} deletes the earlier entry", _checked(s, i, "delete", w.at, setup)
    elif answer == "earlier open":
        yield f"w{i} stops the earlier submit", _checked(s, i, "cancel", w.at, setup)
    elif fresh:
        yield f"w{i} finds submit {w.uid} unknown, prepares its POST", set_worker(s, i, at="post")
    elif w.at == "ask settled" or job.open.state is SubmitState.ACCEPTED or _settled(s, w, setup):
        yield from _unknown(s, i, w, detail, setup)
    if job.cancel and not fresh:
        yield f"w{i} writes down that it stops the run", write(s, i, rows.stopping(job, w.token, "cancel"), "stop")
    if not fresh:
        yield f"! w{i} hands over", write(s, i, rows.release(job, w.token))


def _post(s: State, i: int, w: Worker, setup: Setup) -> State:
    """The last bytes leave. Past D this is the exception of section 8 (d)."""
    if w.token != s.jobs[w.job].token and not (w.late and setup.gap):
        s = s._replace(broken="a POST by a holder whose token is stale")
    if not setup.gap and setup.returns and any(e.job == w.job for e in s.servers[w.server].history):
        s = s._replace(broken="a POST over an earlier entry")
    stray = w.late and "gap not counted" not in setup.broken
    return set_worker(s._replace(air=(*s.air, (w.server, Item(w.job, w.uid, stray)))), i, at="sent")


def _waits(s: State, i: int, w: Worker, setup: Setup) -> Steps:
    """Section 6.1, 6.3 and 6.4."""
    job = s.jobs[w.job]
    if w.token != job.token or job.open is None:
        yield f"w{i} finds its lease lost", lose(s, i)
        return
    if not s.servers[w.server].up:
        yield from _cannot_tell(s, i, w)
        return
    yield f"! w{i} hands over", write(s, i, rows.release(job, w.token))
    answer, detail = _ask(s, w, setup)
    if answer == "ended":
        yield from _ended(s, i, w, detail, setup)
    elif answer == "unknown":
        early = "stop without settle" in setup.broken and job.open.stop
        if job.open.state is SubmitState.ACCEPTED or early or _settled(s, w, setup):
            yield from _unknown(s, i, w, detail, setup)
    elif answer == "earlier ended":
        return
    elif w.at == "stop":
        yield f"w{i} calls cancel", _checked(s, i, "cancel", "stop", setup)
        if detail == "running" and (spent := spend(s, "bad_runs")):
            yield f"! w{i} gives up a run that will not be stopped (c)", _unbound(spent, i, doubtful=True, counted=True)
    elif job.cancel:
        yield f"w{i} writes down that it stops the run", write(s, i, rows.stopping(job, w.token, "cancel"), "stop")
    elif w.at == "take" and detail == "running":
        yield f"w{i} keeps the prompt that began", write(s, i, rows.keep_here(job, w.token), "wait")
    elif w.at == "take":
        yield f"w{i} takes the prompt out of the queue", _checked(s, i, "unqueue", "take", setup)
    elif detail == "pending" and (spent := spend(s, "moves")):
        row = rows.stopping(job, w.token, rows.NEIGHBOUR)
        yield f"w{i} writes down that it takes the prompt back", write(spent, i, row, "take")
    elif detail == "running" and (spent := spend(s, "bad_runs")):
        row = rows.stopping(job, w.token, "timeout")
        yield f"! w{i} sees the run timeout pass", write(spent, i, row, "stop")


def _ended(s: State, i: int, w: Worker, outcome: str, setup: Setup) -> Steps:
    """The history holds the end of this submit's run."""
    job = s.jobs[w.job]
    if not any(e.job == w.job and e.uid == w.uid for e in s.servers[w.server].history):
        s = s._replace(broken="an earlier entry was taken for this submit's")
    if outcome == "success":
        row = rows.collect(job, w.token)
        yield f"w{i} sees submit {w.uid} succeed", write(s, i, row, "collect")
    else:
        row = _retry(job, w, setup)
        yield f"w{i} sees submit {w.uid} end: {outcome} (a)", write(s, i, row, counted=True)


def _retry(job: Job, w: Worker, setup: Setup, *, doubtful: bool = False) -> Job | None:
    after = JobState.FAILED if job.spent + 1 >= setup.attempts else JobState.QUEUED
    return rows.end_attempt(job, w.token, after, spend=True, doubtful=doubtful)


def _unknown(s: State, i: int, w: Worker, earlier: str, setup: Setup) -> Steps:
    """Nobody knows the prompt, and no POST can still bring it: the submit ends (2.5, 5.3).

    An earlier submit's entry that came up in the meantime may have replaced the end of this one's run.
    """
    job = s.jobs[w.job]
    assert job.open is not None
    if _to_be_barred(s, w, setup):
        yield f"w{i} bars submit {w.uid}, asks again", bar(s, w.server, w.job, w.uid)
        return
    doubtful = job.open.state is SubmitState.INTENT
    closed = rows.close(job, w.token, doubtful=doubtful)
    rebooted = job.open.rebooted and "boot ignored" not in setup.broken
    if earlier == "success":
        yield f"w{i} adopts an earlier success", write(s, i, rows.collect(job, w.token), "collect")
    elif job.open.stop == rows.NEIGHBOUR and not (
        job.open.rebooted and "boot ignored at take-back" not in setup.broken
    ):
        yield f"w{i} took submit {w.uid} back, it goes elsewhere", _unbound(s, i, doubtful=False)
    elif job.open.stop and job.open.stop != rows.NEIGHBOUR:
        row = _retry(job, w, setup, doubtful=doubtful)
        yield f"w{i} sees the stopped run gone (a)", write(s, i, row, counted=True)
    elif job.open.state is SubmitState.ACCEPTED and "lost is waited for" in setup.broken:
        return
    elif job.open.state is SubmitState.ACCEPTED or rebooted or earlier:
        yield f"w{i} finds submit {w.uid} lost, submits again (b)", write(s, i, closed, "claimed", counted=True)
    elif w.at == "ask recovered":
        yield f"w{i} closes submit {w.uid} as never queued", write(s, i, closed, "claimed")
    else:
        yield f"w{i} ends a doubt, spends an attempt", write(s, i, _retry(job, w, setup, doubtful=True))


def _to_be_barred(s: State, w: Worker, setup: Setup) -> bool:
    """Before a submit that may never have arrived is closed, the guard is told; then the server is asked once more."""
    job = s.jobs[w.job]
    in_doubt = job.open is not None and job.open.state is SubmitState.INTENT
    told = (w.job, w.uid) in s.servers[w.server].barred or "guard is not told" in setup.broken
    return setup.guard and in_doubt and not told


def _cannot_tell(s: State, i: int, w: Worker) -> Steps:
    job, server = s.jobs[w.job], s.servers[w.server]
    yield f"w{i} can't tell, releases job {w.job} bound", write(s, i, rows.release(job, w.token))
    if w.token == job.token and (server.forgotten or job.cancel) and job.bound != NOWHERE:
        yield f"w{i} gives up server {w.server} (c)", abandon(lose(s, i), w.job)


def _unbound(s: State, i: int, *, doubtful: bool, counted: bool = False) -> State:
    """The open submit ends, the job goes back to the queue for any server, no attempt is spent."""
    w = s.workers[i]
    row = rows.end_attempt(s.jobs[w.job], w.token, JobState.QUEUED, spend=False, doubtful=doubtful)
    return write(s, i, row, counted=counted)


def _checked(s: State, i: int, call: str, at: str, setup: Setup) -> State:
    """A call that changes the server, the margin checked just before it; with a gap between the two if asked for."""
    return set_worker(s, i, at=f"{call}>{at}") if setup.gap else _call(s, i, call, at)


def _call(s: State, i: int, call: str, at: str) -> State:
    w = s.workers[i]
    if w.token != s.jobs[w.job].token and not w.late:
        s = s._replace(broken=f"a {call} by a holder whose token is stale")
    s = set_worker(s, i, at=at)
    if w.late and call == "delete":  # it may take the end of the next holder's run with it: section 8 (d)
        s = s._replace(ran=put(s.ran, w.job, False))
    changes = {"delete": delete_entry, "cancel": stop_prompt, "unqueue": unqueue}
    return changes[call](s, w.server, w.job)


def replies(away: State, queued: State, i: int, name: str, setup: Setup) -> Steps:
    """The table of section 5.6. A death between an answer and its write is the same as an answer that nobody heard."""
    w, job = away.workers[i], away.jobs[away.workers[i].job]
    row = rows.receipt(job, w.token)
    if "no fence on the receipt" in setup.broken and job.open:
        row = job._replace(open=job.open._replace(state=SubmitState.ACCEPTED))
    yield f"{name} is queued: 200, receipt", write(queued, i, row, "wait", late=False)
    yield f"! {name} is queued: 500", set_worker(queued, i, at="ask settled")
    if "500 taken for a refusal" in setup.broken:
        yield f"{name} is queued: 500", _unbound(queued, i, doubtful=False)
    yield f"! {name} is not queued: 500", set_worker(away, i, at="ask settled")
    yield f"! {name} is refused in front: 403", _unbound(away, i, doubtful=False)
    row = rows.end_attempt(job, w.token, JobState.FAILED, spend=True)
    yield f"! {name} is refused: 400", write(away, i, row)
