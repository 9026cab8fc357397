"""Stop chores: a server that is back is told to stop what was given up there, before anything else is judged."""

from __future__ import annotations

import structlog

from genflow.comfy import ComfyError
from genflow.fleet import Fleet, FleetServer
from genflow.protocol import Known
from genflow.queue import Sweeps
from genflow.queue.records import Chore

log = structlog.get_logger()

LATE_TRIES = 5
"""Asks about a prompt that left a worker too late, before its own receipt is believed."""
AGAIN_S = 2.0


class Chores:
    """Does the chores of the servers that this worker reaches."""

    def __init__(self, sweeps: Sweeps, fleet: Fleet) -> None:
        self._sweeps = sweeps
        self._fleet = fleet

    async def do_due(self) -> None:
        """Do what is due, one after another."""
        while True:
            chore = await self._sweeps.claim_chore([server.id for server in self._fleet.reachable])
            server = None if chore is None else self._fleet.by_id(chore.server_id)
            if chore is None or server is None:
                return
            try:
                done = await self._stop(chore, server)
            except ComfyError as error:
                log.info("chore_postponed", job=str(chore.job_id), server=server.name, why=str(error))
                done = False
            if done:
                await self._sweeps.end_chore(chore)
            else:
                await self._sweeps.postpone_chore(chore, delay_s=AGAIN_S)

    async def _stop(self, chore: Chore, server: FleetServer) -> bool:
        """Stop the chore's own submit, and no other of its job; whether that is over."""
        answer = await server.comfy.ask(chore.job_id, chore.submit, doubt=True)
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
            case _ if chore.tries < LATE_TRIES:
                return False  # it may still be on its way
            case _:
                if chore.payload.get("number") is not None:
                    # The server said that it queued it, and only the traces are gone.
                    await self._sweeps.count_run(chore.job_id, chore.submit)
                return True
