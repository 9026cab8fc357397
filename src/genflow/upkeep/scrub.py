"""Scrub: what an ended job left on a server is taken away there: neither history nor disk grows, and no face stays.

Only what is this job's own: the history entry of the chore's submit, the files under `genflow/<job>/`, and inputs that
no other job refers to. Files are emptied, for ComfyUI has no route that deletes one. Temporary previews go with the
server's next start.
"""

from __future__ import annotations

from uuid import UUID

import structlog

from genflow import failpoints
from genflow.backoff import doubling
from genflow.comfy import CALL_TIMEOUT_S, ComfyError
from genflow.fleet import Fleet, FleetServer
from genflow.outputs import files_beside, walk_outputs
from genflow.protocol import Known, boottime
from genflow.queue import Sweeps
from genflow.queue.records import Chore, input_folder

log = structlog.get_logger()

LEASE_S = 120.0
"""Seconds that a scrub is its worker's alone; no call is begun that could end later than that."""
FIRST_AGAIN_S, LAST_AGAIN_S = 2.0, 3_600.0
"""Seconds until a scrub that failed is tried again: at first, and at most."""


class Scrubs:
    """Does the scrubs of the servers that this worker reaches."""

    def __init__(self, sweeps: Sweeps, fleet: Fleet) -> None:
        self._sweeps = sweeps
        self._fleet = fleet

    async def do_due(self) -> None:
        """Do what is due, server by server."""
        for server in self._fleet.reachable:
            while server.healthy and await self._next(server):
                pass

    async def _next(self, server: FleetServer) -> bool:
        asked_at = boottime()
        chore = await self._sweeps.claim_scrub(server.id, lease_s=LEASE_S)
        if chore is None:
            return False
        until = asked_at + LEASE_S - CALL_TIMEOUT_S
        try:
            if chore.submit is None:
                done = await self._inputs(chore, server, until)
            else:
                done = await self._left(chore, chore.submit, server, until)
        except ComfyError as error:
            log.info("scrub_postponed", job=str(chore.job_id), server=server.name, why=str(error))
            done = False
        if done:
            await self._sweeps.end_chore(chore)
        else:
            delay_s = doubling(chore.tries - 1, base_s=FIRST_AGAIN_S, cap_s=LAST_AGAIN_S)
            await self._sweeps.postpone_chore(chore, delay_s=delay_s)
        return True

    async def _left(self, chore: Chore, submit: UUID, server: FleetServer, until: float) -> bool:
        """Empty the submit's files and delete its history entry; whether all of it is done."""
        answer = await server.comfy.ask(chore.job_id, submit, doubt=True)
        if answer.known not in (Known.ENDED, Known.EARLIER_ENDED, Known.UNKNOWN):
            return False  # it runs, or nobody can tell
        kept = [chore.payload.get("outputs") or {}]
        if answer.known is Known.ENDED and answer.entry is not None:
            kept.append(answer.entry.outputs)
        found = {
            (file.subfolder, file.filename)
            for outputs in kept
            for file in walk_outputs(outputs)
            if file.text is None and file.folder_type == "output"
        }
        found.update(*map(files_beside, kept))
        own = input_folder(chore.job_id) + "/"
        names = {(folder, name) for folder, name in found if f"{folder}/".startswith(own)}
        if not await self._empty(chore, server, sorted(names), "output", until) or boottime() > until:
            return False
        failpoints.hit("scrub.before_history")
        if answer.known is Known.ENDED:  # last: it names the files, also to a scrub that has to begin again
            await server.comfy.history_delete(chore.job_id)
        return True

    async def _inputs(self, chore: Chore, server: FleetServer, until: float) -> bool:
        """Empty the job's inputs that no other job refers to; whether all of it is done."""
        names = await self._sweeps.unused_inputs(server.id, chore.job_id)
        split = [(folder, name) for folder, _, name in (each.rpartition("/") for each in names)]
        if not await self._empty(chore, server, split, "input", until):
            return False
        await self._sweeps.inputs_emptied(server.id, chore.job_id, names)
        return True

    async def _empty(
        self, chore: Chore, server: FleetServer, names: list[tuple[str, str]], folder_type: str, until: float
    ) -> bool:
        for folder, name in names:
            if boottime() > until:
                return False
            try:
                await server.comfy.empty(name, folder, folder_type)
            except ValueError as error:
                log.info("scrub_left_a_file", job=str(chore.job_id), server=server.name, why=str(error))
        return True
