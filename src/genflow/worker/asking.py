"""Finding out what a server knows of a job, and clearing what an earlier submit left under the same id.

Only a submit whose POST has not begun clears: a call by id of one that may be queued could hit its own prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

import structlog

from genflow.comfy import ComfyError, ServerUnreachable
from genflow.fleet import FleetServer
from genflow.protocol import Answer, HistoryEntry, Known, same_work
from genflow.queue.records import Work
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools
from genflow.workflow import parse_workflow

log = structlog.get_logger()

CLEARINGS = 8
"""How many earlier entries or items of one id are cleared in one look: a server that brings back more can't be told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look at the server gave.

    `adopted`: a success of an earlier submit, which is the job's result; beside "unknown" only once that is believed.
    """

    answer: Answer
    adopted: HistoryEntry | None = None

    @property
    def known(self) -> Known:
        """What the server knows of this submit."""
        return self.answer.known


class Doubt(Enum):
    """How a POST's doubt ended."""

    THERE = "there"
    REFUSED = "refused"
    """Never queued."""
    LOST = "lost"
    """It may have been queued, and run, before its server forgot it."""


class Asker:
    """Asks one server about one job on behalf of its holder."""

    def __init__(self, tools: Tools, run: JobRun, server: FleetServer, work: Work) -> None:
        self._tools = tools
        self._run = run
        self._server = server
        self._work = work

    def doubt(self) -> bool:
        """Whether another submit of this job to this server was closed without its end being seen.

        On whatever boot: what was still in the air may have arrived after a restart.
        """
        return self._server.id in self._work.doubtful

    async def look(self, submit: UUID) -> Finding:
        """Ask about a submit whose POST may have left. Changes nothing at the server."""
        self._run.check()
        answer = await self._server.comfy.ask(self._run.hold.job_id, submit, doubt=self.doubt(), behind=True)
        earlier = answer.entry if answer.known is Known.UNKNOWN else None
        return Finding(answer, earlier if earlier is not None and self._adopts(earlier) else None)

    async def clear(self, submit: UUID) -> Finding:
        """Ask about a submit whose POST has not begun, until nothing earlier stands in its way.

        An earlier success is adopted unless its files are known to be gone. Any other earlier entry is deleted, since
        it hides what is open under the same id, and an earlier open item is stopped; then the server is asked again.
        """
        job_id = self._run.hold.job_id
        for _ in range(CLEARINGS):
            self._run.check()
            answer = await self._server.comfy.ask(job_id, submit, doubt=self.doubt())
            try:
                if answer.known is Known.EARLIER_ENDED and answer.entry is not None:
                    if self._adopts(answer.entry):
                        return Finding(answer, answer.entry)
                    log.info("earlier_entry_deleted", job=str(job_id), server=self._server.name)
                    if answer.entry.submit is not None:
                        await self._tools.ledger.earlier_ran(self._run.hold, answer.entry.submit, answer.entry)
                    await self._server.comfy.history_delete(job_id, timeout_s=await self._room())
                elif answer.known is Known.EARLIER_OPEN:
                    log.warning("earlier_prompt_stopped", job=str(job_id), server=self._server.name)
                    await self._server.comfy.cancel(job_id, timeout_s=await self._room())
                    await self._run.pause(0.2)
                else:
                    return Finding(answer)
            except ComfyError as error:
                return Finding(Answer(Known.CANT_TELL, why=str(error), away=isinstance(error, ServerUnreachable)))
        return Finding(Answer(Known.CANT_TELL, why="earlier prompts of this id keep coming back"))

    def _adopts(self, entry: HistoryEntry) -> bool:
        if entry.outcome != "success" or self._work.gone_attempts:
            return False
        return same_work(parse_workflow(self._work.workflow), entry.graph)

    async def _room(self) -> float:
        return await room(self._tools, self._run)


async def room(tools: Tools, run: JobRun) -> float:
    """The time limit, in seconds, for a call that changes a server; the lease is renewed first where it leaves less."""
    limit = tools.timing.post_timeout_s
    if not run.hold.allows(limit) and await tools.ledger.renew(run.hold):
        run.cancel_asked = True
    run.check()
    return limit


def outputs_of(entry: dict[str, Any] | None) -> dict[str, Any]:
    """The outputs kept at the end of a run."""
    kept = json.loads(entry) if isinstance(entry, str) else entry or {}
    outputs = kept.get("outputs", {})
    return outputs if isinstance(outputs, dict) else {}
