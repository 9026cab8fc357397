"""The queue and its model side by side: what hypothesis may do to both, and how they are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from genflow.failures import Policy, failure
from genflow.jobs import State, Step, StopReason, SubmitState
from genflow.protocol import HistoryEntry
from genflow.queue import (
    Hold,
    JobCanceled,
    LeaseLost,
    Ledger,
    NotHeld,
    SlotTaken,
    StartByPassed,
)
from genflow.queue.records import NewJob, StoredOutput

from . import rows
from .rows import NOWHERE, Job, Submit
from .twins import FOREVER_S, LEAP_S, WORKERS, Held, Real, Twin, open_real

T = TypeVar("T")


class Choose(Protocol):
    """Picks one of the options: hypothesis does, or a plain generator of random numbers."""

    def __call__(self, options: Sequence[T], /) -> T: ...


SERVERS = ("gpu0", "gpu1")
SLOTS = 1
EVERYTHING = """
    select j.*, j.lease_until < genflow.clock() as over,
           exists (select 1 from genflow.assets as a where a.job_id = j.id and a.kind = 'output') as stored,
           coalesce((select json_agg(u) from genflow.submits as u where u.job_id = j.id), '[]') as submits
    from genflow.jobs as j
"""
ENTRY = HistoryEntry("success", None, {"3": {"images": []}}, None, 1_000, 3_500, {})


def holding(held: Held) -> bool:
    return True


def nothing_open(held: Held) -> bool:
    return held.row.open is None and held.row.collecting == NOWHERE


def something_open(held: Held) -> bool:
    return held.row.open is not None


def something_to_collect(held: Held) -> bool:
    return held.row.collecting != NOWHERE


SWEEPS = ("rescue", "back_offs_end", "start_by_passes", "cancel_of_an_unreachable_server", "chores_are_done")
WRITES = {
    "renew": (holding, 1),
    "upload_begun": (nothing_open, 1),
    "upload_done": (nothing_open, 1),
    "intent": (nothing_open, 6),
    "receipt": (something_open, 2),
    "running": (something_open, 2),
    "stop_asked": (something_open, 1),
    "run_ended": (something_open, 3),
    "close_submit": (something_open, 1),
    "end_attempt": (something_open, 1),
    "release": (holding, 1),
    "finish": (something_to_collect, 3),
}
"""What a holder may write, when, and how often this is tried in proportion."""


class QueueAndModel(RuleBasedStateMachine):
    """One run of hypothesis over the queue and its model."""

    def __init__(self, runner: asyncio.Runner, queue: Real) -> None:
        super().__init__()
        self.runner = runner
        self.queue = queue
        self.twins: list[Twin] = []
        self.holds: list[Held] = []
        self.servers: list[int] = []
        self.stops: set[int] = set()
        """Servers with a prompt that was given up and is not stopped yet: they get no new work."""
        self.leaps = 0

    def teardown(self) -> None:
        self.sql("truncate genflow.jobs, genflow.chores cascade")
        self.sql("select set_config('genflow.clock_offset', '0', false)")

    def real(self, work: Awaitable[T]) -> T:
        async def go() -> T:
            return await work

        return self.runner.run(go())

    def sql(self, query: str, *params: object) -> list[dict[str, Any]]:
        async def go() -> list[dict[str, Any]]:
            async with self.queue.pool.connection() as connection:
                cursor = await connection.execute(query.encode(), params)
                return await cursor.fetchall() if cursor.description else []

        return self.runner.run(go())

    @initialize()
    def two_servers(self) -> None:
        for name in SERVERS:
            server = {"name": name, "slots": SLOTS, "tags": [], "vram": None}
            registered = self.real(self.queue.writer.write("register_server", server))
            self.servers.append(registered[0]["id"])

    @rule(data=st.data())
    def happens(self, data: st.DataObject) -> None:
        self.happen(lambda options: data.draw(st.sampled_from(options)))

    def happen(self, choose: Choose) -> None:
        """One rule for all that may happen, so that the interesting has its weight and every test case goes deep."""
        live = sum(not twin.row.state.terminal for twin in self.twins)
        stale = sum(held.stale for held in self.holds)
        weights = {
            "enqueue": 4 * (live < 2) + (live < 4),
            "cancel": live > 0,
            "claim": 4,
            "write": 8 * (len(self.holds) > stale),
            "write_late": 3 * (stale > 0),
            "heartbeat": 1,
            "sweep": 2,
        }
        event = choose([name for name, weight in weights.items() for _ in range(weight)])
        getattr(self, f"_{event}")(choose)

    # Clients.

    def _enqueue(self, choose: Choose) -> None:
        start_by = choose([True, False])
        job = NewJob(
            id=uuid4(),
            workflow="{}",
            body_hash=b"",
            policy=Policy(max_takeovers=1_000),
            start_by_s=LEAP_S / 2 if start_by else None,
        )
        self.real(self.queue.queue.enqueue(job))
        self.twins.append(Twin(job.id, start_by=start_by))

    def _cancel(self, choose: Choose) -> None:
        open_or_collecting = [twin for twin in self.twins if twin.row.bound != NOWHERE]
        twin = choose(open_or_collecting * 4 + self.twins)
        assert self.real(self.queue.queue.cancel(twin.id))
        if not twin.row.cancel:
            twin.cancel_is_old = False
        twin.row = rows.cancel(twin.row)

    # Workers.

    def _claim(self, choose: Choose) -> None:
        worker = choose(WORKERS)
        ready = {(bound, server): self._ready(bound, server) for bound in (True, False) for server in (0, 1)}
        bound, server = choose([key for key, twins in ready.items() if twins] * 4 + list(ready))
        ledger, at = self._ledger(worker), self.servers[server]
        claim = ledger.claim_bound([at], 1) if bound else ledger.claim_unbound(at, slots=SLOTS, limit=1)
        claimed = [hold for _, hold in self.real(claim)]
        expected = ready[bound, server][:1]
        assert [hold.job_id for hold in claimed] == [twin.id for twin in expected]
        for twin, hold in zip(expected, claimed, strict=True):
            twin.row = rows.claim(twin.row)
            assert hold.token == twin.row.token
            self.holds = [*self.holds[-4:], Held(twin, worker, hold, server)]

    def _ready(self, bound: bool, server: int) -> list[Twin]:
        queued = [twin for twin in self.twins if twin.row.state is State.QUEUED]
        if bound:
            return [twin for twin in queued if twin.row.bound == server]
        if server in self.stops or any(twin.row.open and twin.row.open.server == server for twin in self.twins):
            return []
        return [twin for twin in queued if twin.row.bound == NOWHERE and not (twin.start_by and twin.late)]

    def _write(self, choose: Choose) -> None:
        """What the protocol lets the holder write next."""
        held = choose([held for held in self.holds if not held.stale])
        names = [name for name, (fit, weight) in WRITES.items() if fit(held) for _ in range(weight)]
        getattr(self, f"_{choose(names)}")(held, choose)

    def _write_late(self, choose: Choose) -> None:
        """A holder that was frozen, and lost its lease meanwhile, tries whatever it was about to do."""
        held = choose([held for held in self.holds if held.stale])
        getattr(self, f"_{choose(list(WRITES))}")(held, choose)

    def _heartbeat(self, choose: Choose) -> None:
        worker = choose(WORKERS)
        mine = [held for held in self.holds if held.worker == worker]
        for held in mine:
            held.hold.lost = False
        asked = self.real(self._ledger(worker).heartbeat([held.hold for held in mine], draining=False))
        assert asked == {held.twin.id for held in mine if not held.stale and held.row.cancel}
        for held in mine:
            assert held.hold.lost == held.stale
            if not held.stale:
                held.twin.row = held.row._replace(expired=False)

    # The writes. Each is expected to be refused where the hold is stale.

    def _renew(self, held: Held, choose: Choose) -> None:
        asked = self._fenced(held, rows.renew, lambda ledger, hold: ledger.renew(hold))
        assert asked in (None, held.row.cancel)

    def _upload_begun(self, held: Held, choose: Choose) -> None:
        files = [(f"genflow/{held.twin.id}/ab.png", b"\xab")]
        self._fenced(
            held,
            rows.renew,
            lambda ledger, hold: ledger.upload_begun(hold, server_id=self.servers[held.server], files=files),
        )

    def _upload_done(self, held: Held, choose: Choose) -> None:
        files = [(f"genflow/{held.twin.id}/ab.png", b"\xab")]
        self._fenced(
            held,
            rows.renew,
            lambda ledger, hold: ledger.upload_done(hold, server_id=self.servers[held.server], boot=None, files=files),
        )

    def _intent(self, held: Held, choose: Choose) -> None:
        twin, server, submit = held.twin, held.server, uuid4()
        full = any(other.row.open and other.row.open.server == server for other in self.twins)
        passed = twin.start_by and twin.late and not twin.row.began

        row = rows.intent(twin.row, held.hold.token, Submit(len(twin.submits), server, 0))
        refused: type[Exception] | None = StartByPassed if passed else SlotTaken if full else None
        if row is None:
            refused = JobCanceled if self._canceled(held) else LeaseLost
        held.hold.lost = False
        told = self._outcome(
            self._ledger(held.worker).intent(
                held.hold, submit=submit, server_id=self.servers[server], boot=None, slots=SLOTS
            )
        )[1]
        assert told is refused
        if row is not None and refused is None:
            twin.row = row
            twin.submits.append(submit)

    def _receipt(self, held: Held, choose: Choose) -> None:
        no = self._no(held)
        asked = self._fenced(
            held, rows.receipt, lambda ledger, hold: ledger.receipt(hold, no, number=0.0, client_id="c")
        )
        assert asked in (None, held.row.cancel)

    def _running(self, held: Held, choose: Choose) -> None:
        no = self._no(held)
        asked = self._fenced(held, rows.running, lambda ledger, hold: ledger.running(hold, no, deadline_s=FOREVER_S))
        assert asked in (None, held.row.cancel)

    def _stop_asked(self, held: Held, choose: Choose) -> None:
        reason = choose([StopReason.CANCEL, StopReason.TIMEOUT])
        no = self._no(held)
        self._fenced(
            held,
            lambda row, token: rows.stopping(row, token, reason.value),
            lambda ledger, hold: ledger.stop_asked(hold, no, reason),
        )

    def _run_ended(self, held: Held, choose: Choose) -> None:
        no = self._no(held)
        asked = self._fenced(held, rows.collect, lambda ledger, hold: ledger.run_ended(hold, no, ENTRY))
        assert asked in (None, held.row.cancel)

    def _close_submit(self, held: Held, choose: Choose) -> None:
        lost = choose([True, False])
        no, state = self._no(held), SubmitState.LOST if lost else SubmitState.REFUSED
        self._fenced(
            held,
            lambda row, token: rows.close(row, token, doubtful=not lost),
            lambda ledger, hold: ledger.close_submit(hold, no, state, reason="x", doubtful=not lost, resubmit=lost),
        )

    def _end_attempt(self, held: Held, choose: Choose) -> None:
        state = choose([State.QUEUED, State.WAITING, State.FAILED])
        submit_state = choose([SubmitState.ENDED, SubmitState.REFUSED, SubmitState.WITHDRAWN, SubmitState.ABANDONED])
        spend, doubtful = choose([True, False]), choose([True, False])
        no, given_up = self._no(held), held.row.open
        ended = self._fenced(
            held,
            lambda row, token: rows.end_attempt(
                row, token, state, spend=spend, doubtful=doubtful or submit_state is SubmitState.ABANDONED
            ),
            lambda ledger, hold: ledger.end_attempt(
                hold,
                state=state,
                no=no,
                submit_state=submit_state,
                failure=failure("run_timeout", "x"),
                doubtful=doubtful,
                spend=spend,
                delay_s=LEAP_S / 2 if state is State.WAITING else 0.0,
            ),
        )
        if ended is not None:
            assert ended is held.row.state
            held.twin.due = False
            if given_up is not None and submit_state is SubmitState.ABANDONED:
                self.stops.add(given_up.server)

    def _release(self, held: Held, choose: Choose) -> None:
        wait = choose([True, False])
        state, delay_s = (State.WAITING, LEAP_S / 2) if wait else (State.QUEUED, 0.0)
        released = self._fenced(
            held,
            lambda row, token: rows.release(row, token, state),
            lambda ledger, hold: ledger.release(hold, delay_s=delay_s),
        )
        if released is not None:
            assert released is held.row.state
            held.twin.due = False

    def _finish(self, held: Held, choose: Choose) -> None:
        digest = held.twin.id.bytes * 2
        output = StoredOutput(uuid4(), digest, digest, 12, "3", "images", 0, "a.png", "image", "image/png")
        finished = self._fenced(held, rows.finish, lambda ledger, hold: ledger.finish(hold, [output]))
        assert finished in (None, held.row.state)

    # Time, and the sweeps that every process runs.

    def _sweep(self, choose: Choose) -> None:
        if choose([True, False]):
            self._time_passes()
        getattr(self, f"_{choose(SWEEPS)}")()

    def _time_passes(self) -> None:
        self.leaps += 1
        self.sql("select set_config('genflow.clock_offset', %s, false)", f"{self.leaps * LEAP_S} s")
        for twin in self.twins:
            twin.late = twin.due = twin.cancel_is_old = True
            if twin.row.state is State.HELD:
                twin.row = twin.row._replace(expired=True)

    def _rescue(self) -> None:
        expired = [twin for twin in self.twins if twin.row.state is State.HELD and twin.row.expired]
        assert self.real(self.queue.sweeps.rescue()) == len(expired)
        for twin in expired:
            twin.row = rows.rescue(twin.row)

    def _back_offs_end(self) -> None:
        due = [twin for twin in self.twins if twin.row.state is State.WAITING and twin.due]
        assert self.real(self.queue.sweeps.due()) == len(due)
        for twin in due:
            twin.row = rows.due(twin.row)

    def _start_by_passes(self) -> None:
        after = [rows.expire(twin.row) if twin.start_by and twin.late else twin.row for twin in self.twins]
        changed = sum(new is not twin.row for new, twin in zip(after, self.twins, strict=True))
        assert self.real(self.queue.sweeps.expire()) == changed
        for new, twin in zip(after, self.twins, strict=True):
            twin.row = new

    def _cancel_of_an_unreachable_server(self) -> None:
        stranded = [
            twin
            for twin in self.twins
            if not twin.row.state.terminal
            and twin.row.cancel
            and twin.row.bound != NOWHERE
            and twin.cancel_is_old
            and (twin.row.state is not State.HELD or twin.row.expired)
        ]
        assert self.real(self.queue.sweeps.cancel_unreachable(unseen_s=60.0)) == len(stranded)
        for twin in stranded:
            if twin.row.open is not None:
                self.stops.add(twin.row.open.server)
            twin.row = rows.abandon(twin.row)

    def _chores_are_done(self) -> None:
        self.sql("delete from genflow.chores")
        self.stops.clear()

    # What must hold at every moment.

    @invariant()
    def the_rows_agree(self) -> None:
        found = {row["id"]: row for row in self.sql(EVERYTHING)}
        assert set(found) == {twin.id for twin in self.twins}, "nothing accepted is lost"
        places = []
        for twin in self.twins:
            row, job = found[twin.id], twin.row
            assert State(row["state"]) is job.state
            assert (row["token"], row["attempt"]) == (job.token, job.spent)
            assert (row["executing_at"] is not None) == job.began
            assert (row["worker_id"] is not None) == (job.state is State.HELD)
            assert row["stored"] == (job.state is State.SUCCEEDED), "outputs come with success"
            self._submits_agree(twin, row["submits"])
            places += [(submit["server_id"], submit["slot"]) for submit in row["submits"] if submit["state"] < 10]
            if job.state.terminal:
                continue
            assert (row["cancel_at"] is not None) == job.cancel
            assert (row["step"] == Step.WAIT) == (job.collecting != NOWHERE)
            assert row["server_id"] == (None if job.bound == NOWHERE else self.servers[job.bound])
            if job.state is State.HELD:
                assert row["over"] == job.expired
        assert len(places) == len(set(places)), "two open submits in one slot of a server"

    def _submits_agree(self, twin: Twin, submits: list[dict[str, Any]]) -> None:
        opened = [submit for submit in submits if submit["state"] < SubmitState.ENDED]
        if twin.row.open is None:
            assert opened == []
        else:
            [submit] = opened
            assert submit["uuid"] == str(twin.submits[twin.row.open.uid])
            assert self.servers.index(submit["server_id"]) == twin.row.open.server
            assert (submit["state"], submit["stop_reason"] or "") == (twin.row.open.state, twin.row.open.stop)
        if not twin.row.state.terminal:
            unseen = [x for x in submits if x["doubtful"] or x["state"] == SubmitState.ABANDONED]
            doubt = {self.servers.index(submit["server_id"]) for submit in unseen}
            assert doubt == {k for k in (0, 1) if twin.row.doubt >> k & 1}

    # Helpers.

    def _ledger(self, worker: str) -> Ledger:
        return self.queue.workers[worker]

    def _outcome(self, write: Awaitable[T]) -> tuple[T | None, type[Exception] | None]:
        try:
            return self.real(write), None
        except (NotHeld, StartByPassed, SlotTaken) as refusal:
            return None, type(refusal)

    @staticmethod
    def _no(held: Held) -> int:
        return len(held.twin.submits) or 1

    @staticmethod
    def _canceled(held: Held) -> bool:
        return held.row.state is State.CANCELED or (not held.stale and held.row.cancel)

    def _fenced(
        self, held: Held, expected: Callable[[Job, int], Job | None], write: Callable[[Ledger, Hold], Awaitable[T]]
    ) -> T | None:
        """Write in both; the answer, or None where the model expects the fence to let nothing through."""
        held.hold.lost = False
        row = expected(held.row, held.hold.token)
        refused = None if row is not None else JobCanceled if self._canceled(held) else LeaseLost
        answer, told = self._outcome(write(self._ledger(held.worker), held.hold))
        assert told is refused
        if row is None:
            return None
        held.twin.row = row
        return answer


@contextmanager
def driven(database: str) -> Iterator[type[RuleBasedStateMachine]]:
    """The machine over this database."""

    with asyncio.Runner() as runner:
        real = runner.run(open_real(database))

        class Machine(QueueAndModel):
            def __init__(self) -> None:
                super().__init__(runner, real)

        try:
            yield Machine
        finally:
            runner.run(real.pool.close())
