"""Step 2, submit: the intent, the ask, one POST, the receipt, and how a doubt ends (section 5)."""

from __future__ import annotations

from uuid import UUID, uuid4

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError, ServerUnreachable
from genflow.failures import from_reply
from genflow.jobs import StopReason, SubmitState
from genflow.protocol import Answer, Known, PostReply, Reply, boottime, prompt_body
from genflow.queue import NotHeld, SlotTaken, StartByPassed
from genflow.telemetry import metrics
from genflow.worker.asking import Doubt, room
from genflow.worker.collecting import Collecting
from genflow.worker.endings import SERVER_AWAY_S, Open
from genflow.worker.held import HeldJob
from genflow.worker.judging import Judging
from genflow.worker.telling import Posted
from genflow.workflow import parse_workflow, substitute

log = structlog.get_logger()

ASK_AGAIN_S = 1.0
"""Seconds between two asks of a server that knows nothing yet."""
SLOT_TAKEN_S = 1.0


class Submitting:
    """Gets the prompt of one held job onto its server, once."""

    def __init__(self, job: HeldJob, judging: Judging, collecting: Collecting) -> None:
        self._job = job
        self._judging = judging
        self._collecting = collecting

    async def take_over(self) -> Open | None:
        """Follow the open submit that an earlier holder left, once it is known what became of its POST."""
        record = self._job.work.open_submit
        if record is None:
            return None
        self._job.attempt = record.attempt
        submit = Open(
            record.no,
            record.uuid,
            record.attempt,
            record.boot,
            executed=record.state is SubmitState.EXECUTING,
            running_for_s=record.running_for_s,
        )
        if record.stop_reason is not None:
            submit.stop_reason = StopReason(record.stop_reason)
        if record.state is not SubmitState.INTENT:
            return submit
        settled_at = boottime() + self._job.tools.timing.settle_s - (self._job.claim.since_last_holder_s or 0.0)
        outcome = await self._found(submit, settled_at)
        if outcome is Doubt.THERE:
            await self._receipt(submit, None)
            return submit
        if outcome is Doubt.LOST:
            await self._judging.lost(submit, accepted=False)
        else:
            await self._job.ledger.close_submit(
                self._job.hold, submit.no, SubmitState.REFUSED, reason="its POST never arrived", doubtful=True
            )
        await self._job.load()
        return None

    async def submit(self, names: dict[UUID, str]) -> Open | None:
        """Write the intent down, ask, POST once, and record the receipt; None where the prompt was lost at once."""
        if not self._job.server.takes_new or self._job.run.leaving or self._job.run.cancel_asked:
            await self._job.out.release()
        failpoints.hit("submit.before_intent")
        submit = await self._intent()
        failpoints.hit("submit.after_intent")
        reply = None
        while reply is None:
            finding = await self._job.asker.clear(submit.uuid)
            if finding.adopted is not None:
                await self._collecting.adopt(submit, finding.adopted)
            if finding.known in (Known.PENDING, Known.RUNNING, Known.ENDED):
                await self._receipt(submit, None)
                return submit
            if finding.known is Known.CANT_TELL:
                self._job.cant_tell(finding.answer)
                await self._job.out.withdraw(submit, SERVER_AWAY_S)
            failpoints.hit("submit.after_ask")
            reply = await self._post(submit, names)
        failpoints.hit("submit.before_receipt")
        accepted = await self._settle(submit, reply)
        failpoints.hit("submit.after_receipt")
        return submit if accepted else None

    async def _intent(self) -> Open:
        uuid, boot = uuid4(), self._job.server.boot
        try:
            intent = await self._job.ledger.intent(
                self._job.hold, submit=uuid, server_id=self._job.server.id, boot=boot, slots=self._job.server.slots
            )
        except SlotTaken:
            await self._job.out.release(SLOT_TAKEN_S)
        except StartByPassed:
            await self._job.out.release()
        self._job.attempt = intent.attempt
        return Open(intent.no, uuid, intent.attempt, boot)

    async def _post(self, submit: Open, names: dict[UUID, str]) -> PostReply | None:
        """POST once. Nothing cancels it in mid-air: it ends by its own time limit, and its end is always looked at.

        None, with nothing sent, where the renewal before it took longer than settle: what the server said before that
        is no longer believed, and it is to be asked again.
        """
        listener = self._job.listen()
        await listener.opened()
        submit.listener = listener
        body = prompt_body(
            substitute(parse_workflow(self._job.work.workflow), names),
            job_id=self._job.id,
            submit=submit.uuid,
            token=self._job.hold.token,
            client_id=listener.client_id,
            submit_no=submit.no,
            extra_data=self._job.extra_data,
        )
        began = boottime()
        limit = await room(self._job.tools, self._job.run)
        if self._job.run.cancel_asked:
            await self._job.out.withdraw(submit, 0.0)
        if boottime() - began > self._job.tools.timing.settle_s:
            log.warning("asks_again", job=str(self._job.id), server=self._job.server.name, why="a slow renewal")
            return None
        return await self._job.server.comfy.post(body, job_id=self._job.id, timeout_s=limit, gate=self._gate)

    def _gate(self) -> bool:
        """The last look at the lease, before the prompt's last byte leaves."""
        allowed = self._job.hold.allows()
        failpoints.hit("submit.after_check")
        return allowed

    async def _settle(self, submit: Open, reply: PostReply) -> bool:
        """Turn the reply into a receipt, or send the job on its way (the table of section 5); False: lost at once."""
        metrics.SUBMITS.labels(self._job.server.name, reply.kind.value).inc()
        log.debug("posted", job=str(self._job.id), server=self._job.server.name, reply=reply.kind.value)
        try:
            match reply.kind:
                case Reply.ACCEPTED:
                    self._told(submit)
                    await self._receipt(submit, reply.number)
                case Reply.HALF_VALID:
                    self._told(submit)
                    await self._receipt(submit, reply.number)
                    await self._judging.stop(submit, StopReason.HALF_VALID, from_reply(reply))
                case Reply.REFUSED if reply.error_type in ("connect", "withheld"):
                    if reply.error_type == "connect":
                        self._job.tools.fleet.trouble(self._job.server, reply.message)
                    await self._job.out.withdraw(submit, SERVER_AWAY_S, SubmitState.REFUSED)
                case Reply.REFUSED if reply.error_type == "guard_stale":
                    # The lease was lost, which the renewal finds out. Else this database knows less than the server's
                    # guard (it was restored): each claim is a token higher, so that a later one is let in.
                    await self._job.ledger.renew(self._job.hold)
                    log.warning("token_behind", job=str(self._job.id), server=self._job.server.name)
                    await self._job.out.withdraw(submit, SERVER_AWAY_S, SubmitState.REFUSED)
                case Reply.REFUSED:
                    await self._job.out.fail(submit, from_reply(reply), state=SubmitState.REFUSED)
                case Reply.REFUSED_IN_FRONT:
                    refused = from_reply(reply)
                    await self._job.out.quarantine(refused.quarantine or refused.message)
                    await self._job.out.withdraw(submit, SERVER_AWAY_S, SubmitState.REFUSED)
                case Reply.SETTLED_DOUBT | Reply.OPEN_DOUBT:
                    settle_s = 0.0 if reply.kind is Reply.SETTLED_DOUBT else self._job.tools.timing.settle_s
                    log.warning("post_in_doubt", job=str(self._job.id), server=self._job.server.name, why=reply.message)
                    match await self._found(submit, boottime() + settle_s):
                        case Doubt.THERE:
                            await self._receipt(submit, None)
                        case Doubt.LOST:
                            await self._judging.lost(submit, accepted=False)
                            return False
                        case Doubt.REFUSED:
                            told, doubtful = from_reply(reply), reply.kind is Reply.OPEN_DOUBT
                            await self._job.out.fail(submit, told, state=SubmitState.REFUSED, doubtful=doubtful)
            return True
        except NotHeld:
            if reply.kind in (Reply.ACCEPTED, Reply.HALF_VALID, Reply.SETTLED_DOUBT, Reply.OPEN_DOUBT):
                await self._job.ledger.late_receipt(submit.uuid, reply.number)
            raise

    async def _found(self, submit: Open, settled_at: float) -> Doubt:
        """How a doubt ends; "unknown" is believed only from `settled_at` (boottime) on.

        It is "lost" where the server started anew, or an earlier entry stands: the prompt may have run, and its end be
        gone or replaced. A server that can't tell keeps the job bound: nothing is posted while it can't be asked.
        """
        barring = self._job.server.guard
        while True:
            late = boottime() >= settled_at
            finding = await self._job.asker.look(submit.uuid)
            if finding.known in (Known.PENDING, Known.RUNNING, Known.ENDED):
                return Doubt.THERE
            if finding.known is Known.CANT_TELL:
                self._job.cant_tell(finding.answer)
                await self._job.out.release(SERVER_AWAY_S)
            if late and barring:
                await self._bar(submit)
                barring = False
                continue
            if late and finding.adopted is not None:
                await self._collecting.adopt(submit, finding.adopted)
            if late:
                # The boot is read after the answer, never before: a restart in between would pass unseen.
                lost = finding.answer.entry is not None or await self._job.booted_since(submit)
                return Doubt.LOST if lost else Doubt.REFUSED
            if self._job.run.leaving:
                await self._job.out.release(handed_over=True)
            await self._job.run.pause(min(ASK_AGAIN_S, max(0.01, settled_at - boottime())))

    async def _bar(self, submit: Open) -> None:
        """Have the server's guard let the submit in no more; then it is to be asked once more.

        A POST that was held back for longer than settle, or whose worker is frozen before its last byte, is thus either
        seen by the next ask or never queued. A guard that is gone leaves the settle time alone to tell.
        """
        try:
            limit = await room(self._job.tools, self._job.run)
            await self._job.server.comfy.bar(self._job.id, submit.uuid, self._job.hold.token, timeout_s=limit)
        except ServerUnreachable as error:
            self._job.cant_tell(Answer(Known.CANT_TELL, why=str(error), away=True))
            await self._job.out.release(SERVER_AWAY_S)
        except ComfyError as error:
            log.warning("not_barred", job=str(self._job.id), server=self._job.server.name, why=str(error))

    def _told(self, submit: Open) -> None:
        self._job.tools.tell(Posted(self._job.id, submit.attempt, self._job.server.given, 200))

    async def _receipt(self, submit: Open, number: float | None) -> None:
        client_id = None if submit.listener is None else submit.listener.client_id
        self._job.run.cancel_asked |= await self._job.ledger.receipt(
            self._job.hold, submit.no, number=number, client_id=client_id
        )
