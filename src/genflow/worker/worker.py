"""The claim loop and the heartbeat of one worker process, and its orderly end.

A job is claimed only for a server that is healthy and has a free slot; a job that belongs to a server already (an open
submit, a run to collect) is claimed wherever that server answers. One heartbeat statement renews every lease.
"""

from __future__ import annotations

import asyncio
import math
from typing import Literal
from uuid import UUID

import structlog

from genflow.fleet import Fleet, FleetServer
from genflow.loops import Loop, cut_off, happens
from genflow.protocol import boottime
from genflow.queue import Abilities, Hold, Ledger, NotHeld
from genflow.queue.records import Claim
from genflow.worker.attempt import Attempt
from genflow.worker.hints import Hints
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools

log = structlog.get_logger()

HAND_OVER_S = 5.0
"""Seconds for giving back what was cut off at the very end."""


class Worker:
    """Holds jobs and works on each in a task of its own."""

    def __init__(
        self,
        tools: Tools,
        heart: Ledger,
        abilities: Abilities,
        *,
        conninfo: str,
        max_in_flight: int | None,
        claim_poll_s: float,
    ) -> None:
        self._tools = tools
        self._fleet: Fleet = tools.fleet
        self._heart = heart
        self._abilities = abilities
        self._looked_at = -math.inf
        self._hinted = False
        self._look_every_s = claim_poll_s
        self._max_in_flight = max_in_flight
        self._runs: dict[UUID, JobRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._outages = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._claims = Loop("claim", claim_poll_s, self._claim)
        self._beats = Loop("heartbeat", tools.timing.heartbeat_s, self._beat)
        self._hints = Hints(
            conninfo,
            on_queued=self._look_for_more,
            on_cancel=self._cancel,
            on_watch=tools.live.watch,
            on_listening=self._listening,
            on_learn=self._fleet.learn_soon,
        )

    async def start(self) -> None:
        """Begin to claim. The fleet is started already."""
        self._fleet.on_change = self._claims.wake
        self._live_task = asyncio.create_task(self._tools.live.loop(), name="live progress")
        self._beats.start()
        self._claims.start()
        self._hints.start()

    async def stop(self, *, grace_s: float, how: Literal["leave", "interrupt"]) -> None:
        """Claim no more, give the running jobs `grace_s` seconds, then hand them over or interrupt them.

        Returns once no task of any job is left; a POST in the air is always waited for. What still stands after a
        further lease, such as a long upload, is cut off and handed over.
        """
        self._draining = True
        await self._hints.stop()
        # Cut off, a claim that Postgres has committed would be a job that nobody works on until its lease runs out.
        await self._claims.end(self._tools.timing.lease_s)
        await self._idle_within(grace_s)
        for run in list(self._runs.values()):
            run.ask_leave(how)
        extra_s = self._tools.stop_grace_s if how == "interrupt" else 0.0
        if not await self._idle_within(self._tools.timing.lease_s + extra_s):
            log.warning("cut_off", jobs=[str(job) for job in self._runs])
        unfinished = list(self._runs.values())
        await cut_off(self._tasks)
        await asyncio.gather(*(self._hand_over(run) for run in unfinished))
        await self._beats.stop()
        await cut_off([self._live_task])

    async def _hand_over(self, run: JobRun) -> None:
        """Give back a job whose task was cut off; where the database is away, its lease runs out instead."""
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._tools.ledger.release(run.hold, handed_over=True)
        except (NotHeld, TimeoutError):
            log.info("left_to_its_lease", job=str(run.hold.job_id))

    async def _idle_within(self, seconds: float) -> bool:
        return await happens(self._idle, seconds)

    # --- claiming ---

    @property
    def _room(self) -> int:
        """How many more jobs this process may hold."""
        if self._draining:
            return 0
        limit = self._max_in_flight or sum(server.slots for server in self._fleet.servers)
        return limit - len(self._runs)

    async def _claim(self) -> None:
        """Claim until nothing is left to claim or nothing more may be held."""
        if not self._fleet.reachable:
            return  # a probe that is answered wakes this loop
        waits = True
        if self._hinted and self._room > 1:
            # At once, of the classes that are known: a look takes as long as a claim. The last place is kept for what
            # belongs to a server already, which a queue that never empties would keep out.
            await self._claim_unbound()
        if self._hinted or boottime() - self._looked_at >= self._look_every_s:
            self._hinted, self._looked_at = False, boottime()
            waits = await self._abilities.look()
        while not self._draining and await self._claim_bound() + await self._claim_unbound(waits=waits):
            pass
        outages = self._tools.ledger.outages
        if outages != self._outages:
            # Here no claim is under way, so what the database says beyond `_runs` was claimed without an answer.
            self._outages = outages
            strays = await self._tools.ledger.give_back_strays(list(self._runs))
            if strays:
                log.warning("claims_without_answer", jobs=strays)

    def _look_for_more(self) -> None:
        """Something was queued, and may be of a class that was not seen before."""
        self._hinted = True
        self._claims.wake()

    async def _claim_bound(self) -> int:
        if self._room <= 0:
            return 0
        reachable = [server.id for server in self._fleet.reachable]
        claimed = await self._tools.ledger.claim_bound(reachable, self._room)
        for claim, hold in claimed:
            server = self._fleet.by_id(claim.server_id)
            if server is not None:
                self._begin(claim, hold, server)
        return len(claimed)

    async def _claim_unbound(self, *, waits: bool = True) -> int:
        """One job for the best server that has one to take; where there is only one, for all of its free slots.

        Unless it is known that nothing `waits`: the statement takes longer to plan than to run.
        """
        choices = self._fleet.choices()
        for server in choices if waits else ():
            if self._room <= 0:
                return 0
            lengths, able = self._fleet.lengths(), self._abilities.of(server.id)
            limit = min(self._room, server.free_slots) if len(choices) == 1 else 1
            claimed = await self._tools.ledger.claim_unbound(server.id, slots=server.slots, limit=limit, able=able)
            for claim, hold in claimed:
                chosen = self._previous(claim, server)
                self._fleet.chose(chosen, lengths)
                self._begin(claim, hold, chosen)
            if claimed:
                return len(claimed)
        self._fleet.nothing_for(choices)
        return 0

    def _previous(self, claim: Claim, server: FleetServer) -> FleetServer:
        """The server that the job knows, where it has no more prompts ahead, or room and the job's inputs already."""
        before = next((each for each in self._fleet.choices() if each.id == claim.previous_id), None)
        if before is None or not self._abilities.can(before.id, claim.class_id):
            return server
        worth = before.ahead <= server.ahead or (claim.uploaded and before.ahead < before.slots)
        return before if worth else server

    def _begin(self, claim: Claim, hold: Hold, server: FleetServer) -> None:
        run = JobRun(hold)
        self._runs[hold.job_id] = run
        self._idle.clear()
        self._fleet.take_slot(server, hold.job_id)
        task = asyncio.create_task(self._work(run, claim, server), name=f"job {hold.job_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, run: JobRun, claim: Claim, server: FleetServer) -> None:
        job_id = run.hold.job_id
        try:
            await Attempt(self._tools, run, claim, server).carry_on()
        except Exception:
            # Nothing is known of its state: the lease runs out, and the next holder starts from the last checkpoint.
            log.exception("attempt_broke", job=str(job_id), server=server.name, next=f"genflow jobs show {job_id}")
        finally:
            if self._runs.get(job_id) is run:
                del self._runs[job_id]
            for each in self._fleet.servers:
                self._fleet.free_slot(each, job_id)
            if not self._runs:
                self._idle.set()
            self._claims.wake()

    # --- leases ---

    async def _beat(self) -> None:
        """Renew all leases; stop what is lost, pass on what is to be canceled."""
        runs = dict(self._runs)
        canceled = await self._heart.heartbeat([run.hold for run in runs.values()], draining=self._draining)
        for job_id, run in runs.items():
            if run.hold.lost:
                run.wake.set()
            elif job_id in canceled:
                run.ask_cancel()

    def _listening(self, hears: bool) -> None:
        self._tools.live.listening = hears

    def _cancel(self, job_id: UUID) -> None:
        run = self._runs.get(job_id)
        if run is not None:
            run.ask_cancel()
