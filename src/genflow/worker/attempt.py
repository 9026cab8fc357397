"""One attempt at a job: upload, submit, wait, download, each ending in a checkpoint that is never repeated.

`Attempt.carry_on` goes on after the last checkpoint, whoever left it. The rules are docs/design/protocol.md's; the
sections named here and in the steps' modules are that page's.
"""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError, ServerAnswered, Withheld
from genflow.errors import GenflowError
from genflow.failures import failure
from genflow.fleet import FleetServer
from genflow.jobs import Step, StopReason, SubmitState
from genflow.protocol import HistoryEntry, Known, boottime
from genflow.queue import LeaseLost, NotHeld
from genflow.queue.records import Claim, input_names
from genflow.sealing import CantOpen
from genflow.storage.store import BlobDamaged, BlobMissing
from genflow.telemetry import metrics
from genflow.worker import files
from genflow.worker.asking import outputs_of
from genflow.worker.collecting import Collecting
from genflow.worker.endings import SERVER_AWAY_S, Open
from genflow.worker.held import HeldJob
from genflow.worker.judging import Judging
from genflow.worker.pace import Pace
from genflow.worker.pending import Pending
from genflow.worker.run import GivenAway, JobRun
from genflow.worker.submitting import Submitting
from genflow.worker.tools import Tools

log = structlog.get_logger()

STORAGE_AWAY_S = 5.0
AWAY_ASKS = 3
"""Asks without an answer after which a running job is released, bound to its server, and its place here is free."""


class Attempt:
    """Works on one held job until it is finished or given away."""

    def __init__(self, tools: Tools, run: JobRun, claim: Claim, server: FleetServer) -> None:
        self._job = HeldJob(tools, run, claim, server)
        self._judging = Judging(self._job)
        self._collecting = Collecting(self._job)
        self._submitting = Submitting(self._job, self._judging, self._collecting)

    async def carry_on(self) -> None:
        """Go on after the last checkpoint. Returns once the job is finished, given away, or found to be another's."""
        failpoints.hit("claim.after")
        try:
            await self._job.load()
            if self._job.work.step is Step.WAIT and self._job.work.submit is not None:
                self._job.tools.fleet.free_slot(self._job.server, self._job.id)
                record = self._job.work.submit
                await self._collecting.download(outputs_of(record.entry), record.uuid, record)
            submit = await self._submitting.take_over()
            while True:
                if submit is None:
                    names = await self._upload()
                    submit = await self._submitting.submit(names)
                entry = None if submit is None else await self._wait(submit)
                if entry is not None:
                    await self._collecting.download(entry.outputs, entry.submit)
                submit = None  # its server forgot it: the same id once more
                await self._job.load()
        except GivenAway:
            pass
        except NotHeld as error:
            if isinstance(error, LeaseLost):
                metrics.LEASES_LOST.inc()
            log.info("not_held", job=str(self._job.id), why=type(error).__name__)
        finally:
            if self._job.listener is not None:
                await self._job.listener.close()

    async def _upload(self) -> dict[UUID, str]:
        """Every input lies on the server; the names that the graph is to load."""
        if self._job.work.sealed is not None:
            try:
                self._job.extra_data = self._job.tools.sealer.open(self._job.id, self._job.work.sealed)
            except CantOpen as error:
                await self._job.out.refuse(failure(error.code, error.message))
        self._job.listen()
        if self._job.work.inputs:
            failpoints.hit("upload.before")
            try:
                written = await files.upload_inputs(self._job.tools, self._job.run, self._job.server, self._job.work)
            except Withheld:
                await self._job.out.release()
            except ComfyError as error:
                if isinstance(error, ServerAnswered) and error.status == 413:
                    await self._job.out.refuse(
                        failure("input_too_large", f"the server refuses an input of this size: {error}")
                    )
                self._job.tools.fleet.trouble(self._job.server, f"upload: {error}")
                await self._job.out.release(SERVER_AWAY_S)
            except GenflowError as error:
                await self._storage_trouble(error)
            failpoints.hit("upload.after")
            if written:
                await self._job.ledger.upload_done(
                    self._job.hold, server_id=self._job.server.id, boot=self._job.server.boot, files=written
                )
            failpoints.hit("upload.after_commit")
        return input_names(self._job.id, self._job.work.inputs)

    async def _storage_trouble(self, error: GenflowError) -> NoReturn:
        if (
            isinstance(error, BlobMissing | BlobDamaged)
            and await self._job.tools.store.marker() == self._job.tools.store_marker
        ):
            # The store itself is there: no time will bring the input back.
            await self._job.out.refuse(failure("input_unavailable", f"an input of this job is lost: {error.message}"))
        metrics.STORAGE_ERRORS.labels("upload").inc()
        log.warning("storage_unavailable", job=str(self._job.id), why=error.message)
        await self._job.out.release(STORAGE_AWAY_S)

    async def _wait(self, submit: Open) -> HistoryEntry | None:
        """Poll until the run ended; its entry, or None where the prompt is lost and to be queued again."""
        failpoints.hit("wait.before")
        pace = Pace(self._job.tools.poll_s, self._job.work.policy, submit.listener, submit.running_for_s)
        pending = Pending(self._job, submit)
        seen_running, away, unreadable_since = False, 0, None
        while True:
            reason = pace.overdue() if submit.stop_reason in (None, StopReason.NEIGHBOUR) else submit.stop_reason
            if self._job.run.cancel_asked:
                reason = StopReason.CANCEL
            if reason is not None:
                return await self._judging.stop(submit, reason)
            if self._job.run.leaving:
                await self._leave(submit)
            await pending.take_out()
            finding = await self._job.asker.look(submit.uuid)
            if finding.adopted is not None:
                await self._collecting.adopt(submit, finding.adopted)
            away = away + 1 if finding.answer.away else 0
            if finding.known is not Known.CANT_TELL:
                unreadable_since = None
            match finding.known:
                case Known.PENDING:
                    await pending.waits()
                case Known.RUNNING if not seen_running:
                    await pending.runs()
                    pace.saw_running()
                    self._job.ran_from(0.0)
                    seen_running = submit.executed = True
                    self._job.run.cancel_asked |= await self._job.ledger.running(
                        self._job.hold, submit.no, deadline_s=self._deadline_s
                    )
                    failpoints.hit("wait.running")
                case Known.ENDED if finding.answer.entry is not None:
                    return await self._judging.ended(submit, finding.answer.entry)
                case Known.UNKNOWN:
                    await pending.gone(finding.answer)
                    await self._judging.lost(submit, accepted=finding.answer.entry is None)
                    return None
                case Known.CANT_TELL if away >= AWAY_ASKS:
                    self._job.cant_tell(finding.answer)
                    await self._job.out.release(SERVER_AWAY_S)
                case Known.CANT_TELL if not finding.answer.away:
                    unreadable_since = unreadable_since or boottime()
                    if boottime() - unreadable_since > self._job.work.policy.run_timeout_s:
                        told = failure("server_unreadable", f"{self._job.server.name}: {finding.answer.why}")
                        await self._job.out.fail(submit, told, state=SubmitState.ABANDONED, executed=submit.executed)
            await self._job.run.pause(pace.next_poll_s())

    @property
    def _deadline_s(self) -> float:
        """Seconds after which SQL takes the job from a holder whose heart beats but who makes nothing of it."""
        return self._job.work.policy.run_timeout_s + self._job.tools.stop_grace_s + 60.0

    async def _leave(self, submit: Open) -> None:
        """This worker goes away: the run goes on at its server under another holder, or is stopped."""
        if self._job.run.leaving == "interrupt":
            await self._judging.stop(submit, StopReason.SHUTDOWN)
        await self._job.out.release(handed_over=True)
