"""Stop chores: a server that is back is told to stop what was given up there, before anything else is judged."""

from __future__ import annotations

import math

import structlog

from genflow.comfy import CALL_TIMEOUT_S, ComfyError
from genflow.fleet import Fleet, FleetServer
from genflow.protocol import Known, boottime
from genflow.queue import Sweeps
from genflow.queue.records import Chore

log = structlog.get_logger()

AGAIN_S = 2.0
CHORE_LEASE_S = 120.0
"""Seconds that a chore is its worker's alone; a call that could come later than that is not made."""


class Chores:
    """Does the chores of the servers that this worker reaches."""

    def __init__(self, sweeps: Sweeps, fleet: Fleet, *, settle_s: float) -> None:
        self._sweeps = sweeps
        self._fleet = fleet
        self._late_tries = 5 + math.ceil(settle_s / AGAIN_S)
        # How often a prompt that left a worker too late is asked for, before its own receipt is believed.

    async def do_due(self) -> None:
        """Do what is due, one after another."""
        while True:
            asked_at = boottime()
            chore = await self._sweeps.claim_chore(
                [server.id for server in self._fleet.reachable], lease_s=CHORE_LEASE_S
            )
            server = None if chore is None else self._fleet.by_id(chore.server_id)
            if chore is None or server is None:
                return
            try:
                done = await self._stop(chore, server, until=asked_at + CHORE_LEASE_S - 2 * CALL_TIMEOUT_S)
            except ComfyError as error:
                log.info("chore_postponed", job=str(chore.job_id), server=server.name, why=str(error))
                done = False
            if done:
                await self._sweeps.end_chore(chore)
            else:
                await self._sweeps.postpone_chore(chore, delay_s=AGAIN_S)

    async def _stop(self, chore: Chore, server: FleetServer, *, until: float) -> bool:
        """Stop the chore's own submit, and no other of its job; whether that is over. Changes nothing past `until`."""
        answer = await server.comfy.ask(chore.job_id, chore.submit, doubt=True)
        if boottime() > until:
            return False
        late = bool(chore.payload.get("late"))
        match answer.known:
            case Known.PENDING:
                await server.comfy.queue_delete(chore.job_id)
                return False  # asked once more: it may have begun to run
            case Known.RUNNING:
                await self._sweeps.count_run(chore.job_id, chore.submit)
                await server.comfy.cancel(chore.job_id)
                log.info("stopped_after_the_fact", job=str(chore.job_id), server=server.name)
                return False
            case Known.ENDED:
                await self._sweeps.count_run(chore.job_id, chore.submit)
                return True
            case Known.CANT_TELL:
                return False
            case _ if not late:
                return True
            case _ if chore.tries < self._late_tries:
                return False  # it may still be on its way
            case _:
                if chore.payload.get("number") is not None:
                    # The server said that it queued it, and only the traces are gone.
                    await self._sweeps.count_run(chore.job_id, chore.submit)
                return True
