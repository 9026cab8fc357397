"""A prompt that waits at its server: when it is taken back, how often, and when the whole queue is read for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from genflow.comfy import ServerUnreachable
from genflow.jobs import StopReason
from genflow.protocol import Answer, HistoryEntry, Known
from genflow.queue.registry import ServerState, Standing
from genflow.worker import pending
from genflow.worker.endings import Open
from genflow.worker.held import HeldJob
from genflow.worker.pending import LOOKS, MOST_MOVES, Pending

STUCK_S = 900.0


class Withdrawn(Exception):
    """The job left its server."""


class World:
    """One job that is pending on a server, and everything that its holder does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, taken_back: int = 0, spare: str | None = None) -> None:
        self.now, self.running, self.did, self.restarted = 1_000.0, frozenset[str](), list[str](), False
        self.answers = True
        self.ours, self.id = uuid4(), uuid4()
        self.standing = Standing(ServerState.READY, None)
        monkeypatch.setattr(pending, "boottime", lambda: self.now)
        self.spare = None if spare is None else SimpleNamespace(name=spare)
        self.submit = Open(1, uuid4(), 1, None)
        ledger = SimpleNamespace(
            stop_asked=self._does("marked"), keep_here=self._does("kept"), renew=self._does("renewed")
        )
        comfy = SimpleNamespace(
            runs_before=self._runs_before, queue_delete=self._does("taken out"), cancel=self._does("CANCELED")
        )
        job = SimpleNamespace(
            id=self.id,
            hold=None,
            ledger=ledger,
            claim=SimpleNamespace(class_id=0),
            run=SimpleNamespace(
                hold=SimpleNamespace(allows=lambda seconds: True),
                check=lambda: None,
                wake=SimpleNamespace(set=lambda: None),
            ),
            work=SimpleNamespace(taken_back=taken_back),
            server=SimpleNamespace(name="s0", comfy=comfy, ours={self.ours}, standing=self.standing),
            out=SimpleNamespace(quarantine=self._does("quarantined"), withdraw=self._withdraw),
            tools=SimpleNamespace(
                stuck_s=STUCK_S,
                can=lambda server, class_id: True,
                ledger=ledger,
                timing=SimpleNamespace(post_timeout_s=10.0),
                fleet=SimpleNamespace(take_spare=self._take_spare),
            ),
            booted_since=self._booted_since,
        )
        self.job = job
        self.pending = Pending(cast(HeldJob, job), self.submit)

    def _does(self, what: str) -> Any:
        async def did(*given: object, **named: object) -> None:
            self.did.append(what)

        return did

    async def _runs_before(self, job: object) -> frozenset[str]:
        self.did.append("read /queue")
        if not self.answers:
            raise ServerUnreachable("away")
        return self.running

    def _take_spare(self, server: object, able: object) -> Any:
        self.did.append("looked for a spare")
        return self.spare

    async def _withdraw(self, submit: object, *, moved: bool) -> None:
        raise Withdrawn

    async def _booted_since(self, submit: object) -> bool:
        return self.restarted

    async def looks(self, times: int = 1, every_s: float = STUCK_S / LOOKS) -> None:
        for _ in range(times):
            self.now += every_s
            await self.pending.waits()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_the_queue_is_read_only_for_a_prompt_that_waited_that_long(world: World) -> None:
    await world.looks(59, every_s=5.0)
    assert "read /queue" not in world.did, "it holds every graph of everybody"
    await world.looks(60, every_s=5.0)
    assert world.did.count("read /queue") == 1, "and not with every poll"


async def test_a_queue_in_which_nothing_moves_costs_its_server_the_trust(world: World) -> None:
    world.running = frozenset({"a stranger's"})
    await world.looks(LOOKS)
    assert "quarantined" not in world.did
    await world.looks()
    assert world.did[-2:] == ["quarantined", "marked"]
    assert world.submit.stop_reason is StopReason.NEIGHBOUR


@pytest.mark.parametrize("what", ["another stranger", "a prompt of ours", "no answer"])
async def test_whatever_moves_or_is_ours_begins_the_count_anew(world: World, what: str) -> None:
    world.running = frozenset({"a stranger's"})
    await world.looks(LOOKS)
    if what == "another stranger":
        world.running = frozenset({"the next one's"})
    elif what == "a prompt of ours":
        world.running = frozenset({str(world.ours)})
    else:
        world.answers = False
    await world.looks()
    world.running, world.answers = frozenset({"a stranger's"}), True
    await world.looks(LOOKS)
    assert "quarantined" not in world.did


async def test_a_long_run_of_ours_in_front_is_no_reason_to_distrust_a_server(world: World) -> None:
    world.running = frozenset({str(world.ours)})
    await world.looks(3 * LOOKS)
    assert "quarantined" not in world.did, "it has time limits of its own"


@pytest.mark.parametrize(("moves", "marks"), [(0, 1), (MOST_MOVES - 1, 1), (MOST_MOVES, 0), (MOST_MOVES + 1, 0)])
async def test_a_job_is_taken_back_for_an_idle_server_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch, moves: int, marks: int
) -> None:
    world = World(monkeypatch, taken_back=moves, spare="s1")
    await world.looks(2, every_s=1.0)
    assert world.did.count("marked") == marks
    assert ("looked for a spare" in world.did) == (moves < MOST_MOVES), "nobody's idle server is kept for nothing"


async def test_a_distrusted_server_loses_it_however_often_it_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, taken_back=MOST_MOVES)
    world.job.server.standing = Standing(ServerState.QUARANTINED, "CUDA fault")
    await world.looks(1, every_s=1.0)
    assert world.did == ["marked"]


async def test_it_is_taken_out_only_by_queue_delete_and_stays_once_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, spare="s1")
    await world.pending.take_out()
    assert world.did == [], "nothing is taken out that is not marked"
    await world.looks(1, every_s=1.0)
    await world.pending.take_out()
    assert world.did[-1] == "taken out"
    assert "CANCELED" not in world.did, "it would kill a run that has just begun"
    await world.pending.runs()
    assert (world.did[-1], world.submit.stop_reason) == ("kept", None)


async def test_what_is_gone_was_taken_out_unless_its_server_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, spare="s1")
    gone = Answer(Known.UNKNOWN)
    await world.pending.gone(gone)  # unmarked: the judgement is another's
    await world.looks(1, every_s=1.0)
    world.restarted = True
    await world.pending.gone(gone)
    world.restarted = False
    behind = HistoryEntry("success", None, {}, None, None, None, {})
    await world.pending.gone(Answer(Known.UNKNOWN, entry=behind))
    with pytest.raises(Withdrawn):
        await world.pending.gone(gone)
