"""Which loops run where: rescue and back-off need a worker to be of use, expiry must work without any."""

from __future__ import annotations

from genflow.fleet import Fleet
from genflow.loops import Loop
from genflow.protocol import Timing
from genflow.queue import Sweeps
from genflow.upkeep.chores import Chores
from genflow.upkeep.retention import Retention
from genflow.upkeep.scrub import Scrubs

EXPIRE_S = 2.0
UNSEEN_S = 60.0
"""Seconds without its server after which a cancel is taken as done, and a result past its window as lost."""
DUE_S = 0.5
CHORES_S = 1.0


class ApiUpkeep:
    """Loops of every process: expiry, cancels that nobody can carry out, results that nobody can fetch, retention."""

    def __init__(self, sweeps: Sweeps, retention: Retention, *, collect_window_s: float) -> None:
        self._sweeps = sweeps
        self._collect_window_s = collect_window_s
        self._loops = [Loop("expire", EXPIRE_S, self._expire), *retention.loops()]

    async def _expire(self) -> None:
        await self._sweeps.expire()
        await self._sweeps.cancel_unreachable(unseen_s=UNSEEN_S)
        await self._sweeps.uncollected(window_s=self._collect_window_s, unseen_s=UNSEEN_S)

    def start(self) -> None:
        """Begin."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """End."""
        for loop in self._loops:
            await loop.stop()


class WorkerUpkeep(ApiUpkeep):
    """Loops of a worker: rescue every third of a lease, jobs whose back-off is over, chores of its servers."""

    def __init__(
        self,
        sweeps: Sweeps,
        retention: Retention,
        fleet: Fleet,
        timing: Timing,
        *,
        collect_window_s: float,
        server_lost_after_s: float | None = None,
    ) -> None:
        super().__init__(sweeps, retention, collect_window_s=collect_window_s)
        self._server_lost_after_s = server_lost_after_s
        chores = Chores(sweeps, fleet, settle_s=timing.settle_s)
        self._loops += [
            Loop("rescue", timing.lease_s / 3, self._rescue),
            Loop("due", DUE_S, self._due),
            Loop("chores", CHORES_S, chores.do_due),
            Loop("scrubs", CHORES_S, Scrubs(sweeps, fleet).do_due),
        ]

    async def _rescue(self) -> None:
        freed = await self._sweeps.rescue() + await self._sweeps.give_up_lost(unseen_s=self._server_lost_after_s)
        if freed:
            await self._sweeps.announce()
        await self._sweeps.late_chores()

    async def _due(self) -> None:
        if await self._sweeps.due():
            await self._sweeps.announce()
