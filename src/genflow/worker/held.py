"""One held job inside an attempt: its server, what Postgres knows of it, and its socket. The steps share it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from genflow.comfy import ComfyError
from genflow.fleet import FleetServer
from genflow.protocol import Answer, boottime
from genflow.queue import Hold, Ledger
from genflow.queue.records import Claim, Work
from genflow.telemetry import metrics
from genflow.worker.asking import Asker
from genflow.worker.endings import Endings, Open
from genflow.worker.listening import Listener
from genflow.worker.progress import Progress
from genflow.worker.run import JobRun
from genflow.worker.telling import SocketLost
from genflow.worker.tools import Tools
from genflow.workflow import parse_workflow


class HeldJob:
    """The job that one attempt works on. `load` comes before all else: it sets `work`, `asker` and `out`."""

    work: Work
    asker: Asker
    out: Endings

    def __init__(self, tools: Tools, run: JobRun, claim: Claim, server: FleetServer) -> None:
        self.tools = tools
        self.ledger: Ledger = tools.ledger
        self.run = run
        self.hold: Hold = run.hold
        self.claim = claim
        self.server = server
        self.listener: Listener | None = None
        self.extra_data: dict[str, Any] | None = None
        """What its client gave the job for the worker alone, once it was opened."""
        self._loaded_at = 0.0
        self._ran = False
        self.attempt = 0
        """The number of the attempt in hand, once there is one."""

    @property
    def id(self) -> UUID:
        """The job's id, which is ComfyUI's prompt id too."""
        return self.hold.job_id

    async def load(self) -> None:
        """Read the last checkpoint."""
        self.work = await self.ledger.load(self.hold)
        self._loaded_at = boottime()
        self.run.cancel_asked |= self.work.cancel_asked
        self.attempt = self.work.attempt
        self.asker = Asker(self.tools, self.run, self.server, self.work)
        self.out = Endings(self.tools, self.run, self.server, self.work)

    def ran_from(self, seconds_ago: float) -> None:
        """It runs since `seconds_ago`: how long it waited for that is counted, once a job."""
        if not self._ran and not self.work.executing:
            waited_s = self.work.age_s + boottime() - self._loaded_at - seconds_ago
            metrics.WAIT_SECONDS.observe(max(0.0, waited_s))
        self._ran = True

    def cant_tell(self, answer: Answer) -> None:
        """A server that gave no answer gets no new work until a probe is answered."""
        if answer.away:
            self.tools.fleet.trouble(self.server, answer.why)

    async def booted_since(self, submit: Open) -> bool:
        """Whether the server started anew since this submit. A probe may have seen the new boot long ago."""
        try:
            self.server.boot = await self.server.comfy.read_boot()
        except ComfyError:
            return True
        return submit.boot != self.server.boot

    def listen(self) -> Listener:
        """A socket of this submit's own, opened ahead of its POST."""
        if self.listener is None:
            graph = parse_workflow(self.work.workflow)
            progress = Progress(graph, self.tools.will_run(self.server.id, graph))
            self.listener = Listener(self.server.comfy, self.run, progress, self.tools.live, self._socket_lost)
        return self.listener

    def _socket_lost(self) -> None:
        if self.attempt > self.work.attempt:  # a prompt is on its way
            self.tools.tell(SocketLost(self.id, self.attempt, self.server.given))

    async def quiet(self) -> None:
        """The submit is over: its socket too."""
        if self.listener is not None:
            await asyncio.shield(self.listener.close())
            self.listener = None
