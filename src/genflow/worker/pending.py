"""A prompt that waits at its server: taken back where another server idles, or where nothing runs there any more.

Only by `queue delete`, never by a cancel, which would kill a run that just began. What is to be taken back is written
down first: whoever takes the job over goes on with it. A prompt that began all the same stays where it is. One that is
unknown afterwards was taken out, unless its server started anew: then it may have run, and is lost
(docs/design/protocol.md, section 6).
"""

from __future__ import annotations

import structlog

from genflow.comfy import ComfyError
from genflow.failures import NEEDS_RUN, QUARANTINES
from genflow.jobs import StopReason
from genflow.protocol import Answer, boottime
from genflow.queue.registry import ServerState
from genflow.worker.asking import room
from genflow.worker.endings import Open
from genflow.worker.held import HeldJob

log = structlog.get_logger()

MOST_MOVES = 3
"""How often one job is taken back for an idle server."""
LOOKS = 3
"""So many looks in a row at a queue in which nothing moves, and a server is distrusted."""


class Pending:
    """The time of one submit before its run."""

    def __init__(self, job: HeldJob, submit: Open) -> None:
        self._job = job
        self._submit = submit
        self._looked_at = boottime()
        self._front: frozenset[str] | None = None
        self._still = 0

    @property
    def _marked(self) -> bool:
        return self._submit.stop_reason is StopReason.NEIGHBOUR

    async def take_out(self) -> None:
        """Where it is to be taken back: one more call that takes it out of the queue."""
        if not self._marked:
            return
        try:
            limit_s = await room(self._job.tools, self._job.run)
            await self._job.server.comfy.queue_delete(self._job.id, timeout_s=limit_s)
        except ComfyError as error:
            log.debug("not_taken_out", job=str(self._job.id), server=self._job.server.name, why=str(error))

    async def waits(self) -> None:
        """It was seen pending: take it back where that is better for it, and write that down before anything else."""
        if self._marked:
            return
        server, spare = self._job.server, None
        distrusted = server.standing.state is ServerState.QUARANTINED and server.standing.reason in NEEDS_RUN
        if not distrusted and await self._stands_still():
            await self._job.out.quarantine(QUARANTINES["server_runs_nothing"])
            distrusted = True
        if not distrusted and self._job.work.taken_back < MOST_MOVES:
            class_id = self._job.claim.class_id
            spare = self._job.tools.fleet.take_spare(server, lambda other: self._job.tools.can(other, class_id))
        if distrusted or spare is not None:
            to = None if spare is None else spare.name
            log.info("taken_back", job=str(self._job.id), server=server.name, idle=to, distrusted=distrusted)
            await self._job.ledger.stop_asked(self._job.hold, self._submit.no, StopReason.NEIGHBOUR)
            self._submit.stop_reason = StopReason.NEIGHBOUR
            self._job.run.wake.set()

    async def runs(self) -> None:
        """It began: it stays."""
        if self._marked:
            await self._job.ledger.keep_here(self._job.hold, self._submit.no)
            self._submit.stop_reason = None

    async def gone(self, answer: Answer) -> None:
        """It is unknown. Where it was taken out, its submit ends here, uncounted; else this returns."""
        if self._marked and answer.entry is None and not await self._job.booted_since(self._submit):
            await self._job.out.withdraw(self._submit, moved=True)

    async def _stands_still(self) -> bool:
        """Whether the same prompt of others stood in front of ours, or none at all, at look after look over `stuck_s`.

        A dead worker thread leaves its prompt in `queue_running` for ever (F3.7). A long run of a stranger looks the
        same: then ours is better off elsewhere too. What runs there for this worker has time limits of its own.
        `/queue` holds every graph of everybody: it is read seldom, and only for a prompt that has waited that long.
        """
        stuck_s, now = self._job.tools.stuck_s, boottime()
        if now - self._looked_at < stuck_s / LOOKS:
            return False
        self._looked_at = now
        try:
            running = await self._job.server.comfy.runs_before(self._job.id)
        except ComfyError:
            running = None
        ours = {str(job) for job in self._job.server.ours}
        if running is None or running & ours:
            self._still, self._front = 0, None
            return False
        self._still = self._still + 1 if running == self._front else 0
        self._front = running
        return self._still >= LOOKS
