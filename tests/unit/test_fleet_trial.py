"""A server that fails its trials is tried again ever more seldom, and soon again after one that it passed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import aiohttp
import pytest

import genflow.fleet.fleet as module
from genflow.fleet import Fleet
from genflow.fleet.probe import Seen
from genflow.fleet.trial import TrialFailed
from genflow.queue.registry import Probed, Registry, ServerState, Standing
from genflow.settings import ServerSettings

QUARANTINE_S = 600.0
REASON = "CUDA fault"


class Books:
    """A registry without a database, in which each probe's answer is a turn for a trial while trials are `due`."""

    def __init__(self) -> None:
        self.quarantines: list[float] = []
        self.passed = 0
        self.due = 0
        self.five = asyncio.Event()

    async def register_server(self, **named: object) -> SimpleNamespace:
        return SimpleNamespace(id=1, boot=None)

    async def save_object_info(self, hash: bytes, body: str) -> None:
        pass

    async def probed(self, server: int, **named: object) -> Probed:
        self.due -= 1
        return Probed(Standing(ServerState.QUARANTINED, REASON), 0, None, trial=self.due >= 0)

    async def quarantine(self, server: int, reason: str, *, seconds: float, needs_run: bool) -> None:
        assert (reason, needs_run) == (REASON, True), "only a run sets it free, and the first reason stands"
        self.quarantines.append(seconds)
        if len(self.quarantines) == 5:
            self.five.set()

    async def trial_passed(self, server: int) -> bool:
        self.passed += 1
        return True


async def test_each_failed_trial_doubles_the_time_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    books, outcomes = Books(), iter([False] * 4 + [True, False])

    async def answers(comfy: object, **named: object) -> Seen:
        return Seen(depth=0, boot=UUID(int=1), jobs_route=True, guard=False, device=None)

    async def nothing_learned(fleet: Fleet, server: object) -> None:
        return None

    async def tried(comfy: object, *, within_s: float) -> None:
        if not next(outcomes):
            raise TrialFailed("it did not run")

    monkeypatch.setattr(module, "probe", answers)
    monkeypatch.setattr(module, "run_trial", tried)
    monkeypatch.setattr(Fleet, "_learn", nothing_learned)
    fleet = Fleet(
        cast(Registry, books),
        cast(aiohttp.ClientSession, None),
        gpus={"gpu0": ServerSettings(url="http://127.0.0.1:8188")},
        instance="test",
        slots=1,
        probe_s=0.005,
        quarantine_s=QUARANTINE_S,
        alive_s=60.0,
    )
    books.due = 6
    await fleet.start()
    try:
        async with asyncio.timeout(20):
            await books.five.wait()
    finally:
        await fleet.stop()
    assert books.quarantines == [1_200.0, 2_400.0, module.LONGEST_S, module.LONGEST_S, 1_200.0], "then anew"
    assert books.passed == 1
