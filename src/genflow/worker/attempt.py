"""One attempt at a job: upload, submit, wait, download, each ending in a checkpoint that is never repeated.

`Attempt.carry_on` goes on after the last checkpoint, whoever left it. The rules are docs/design/protocol.md's; the
sections named here are that page's.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NoReturn
from uuid import UUID, uuid4

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError, OutputGone, ServerAnswered, ServerUnreachable, Withheld
from genflow.errors import GenflowError
from genflow.failures import Failure, Then, decide, failure, from_execution, from_reply
from genflow.fleet import FleetServer
from genflow.jobs import State, Step, StopReason, SubmitState
from genflow.protocol import HistoryEntry, Known, PostReply, Reply, boottime, prompt_body, walk_outputs
from genflow.queue import Ledger, NotHeld, SlotTaken, StartByPassed
from genflow.queue.records import Claim, StoredOutput, SubmitRecord, Work
from genflow.storage.store import BlobDamaged, BlobMissing
from genflow.worker import files
from genflow.worker.asking import Asker, Doubt, Finding, outputs_of, room
from genflow.worker.endings import Endings, Open
from genflow.worker.listening import Listener
from genflow.worker.pace import Pace
from genflow.worker.progress import Progress
from genflow.worker.run import GivenAway, JobRun
from genflow.worker.stopping import stop_prompt
from genflow.worker.tools import Tools
from genflow.workflow import parse_workflow, substitute

log = structlog.get_logger()

ASK_AGAIN_S = 1.0
"""Seconds between two asks of a server that knows nothing yet."""
SLOT_TAKEN_S = 1.0
SERVER_AWAY_S = 1.0
STORAGE_AWAY_S = 5.0
AWAY_ASKS = 3
"""Asks without an answer after which a running job is released, bound to its server, and its place here is free."""


class Attempt:
    """Works on one held job until it is finished or given away."""

    def __init__(self, tools: Tools, run: JobRun, claim: Claim, server: FleetServer) -> None:
        self._tools = tools
        self._ledger: Ledger = tools.ledger
        self._run = run
        self._hold = run.hold
        self._claim = claim
        self._server = server
        self._work: Work
        self._asker: Asker
        self._out: Endings
        self._listener: Listener | None = None

    async def carry_on(self) -> None:
        """Go on after the last checkpoint. Returns once the job is finished, given away, or found to be another's."""
        failpoints.hit("claim.after")
        try:
            await self._load()
            self._prefer_uploaded()
            if self._work.step is Step.WAIT and self._work.submit is not None:
                self._tools.fleet.free_slot(self._server, self._hold.job_id)
                await self._download(outputs_of(self._work.submit.entry), self._work.submit)
            submit = await self._take_over()
            while True:
                if submit is None:
                    names = await self._upload()
                    submit = await self._submit(names)
                entry = None if submit is None else await self._wait(submit)
                if entry is not None:
                    await self._download(entry.outputs, None)
                submit = None  # its server forgot it: the same id once more
                await self._load()
        except GivenAway:
            pass
        except NotHeld as error:
            log.info("not_held", job=str(self._hold.job_id), why=type(error).__name__)
        finally:
            if self._listener is not None:
                await self._listener.close()

    async def _load(self) -> None:
        self._work = await self._ledger.load(self._hold)
        self._run.cancel_asked |= self._work.cancel_asked
        self._asker = Asker(self._tools, self._run, self._server, self._work)
        self._out = Endings(self._tools, self._run, self._server, self._work)

    def _prefer_uploaded(self) -> None:
        """Go to a server that has the inputs already, where a slot is free there."""
        if self._work.server_id is not None or any(file.server_id == self._server.id for file in self._work.uploads):
            return
        there = {file.server_id for file in self._work.uploads}
        better = next((server for server in self._tools.fleet.choices() if server.id in there), None)
        if better is not None and better.ahead < better.slots:
            self._tools.fleet.take_slot(better, self._hold.job_id)
            self._tools.fleet.free_slot(self._server, self._hold.job_id)
            self._server = better
            self._asker = Asker(self._tools, self._run, better, self._work)
            self._out = Endings(self._tools, self._run, better, self._work)

    # --- step 1: upload ---

    async def _upload(self) -> dict[UUID, str]:
        """Every input lies on the server; the names that the graph is to load."""
        self._listen()
        if self._work.inputs:
            failpoints.hit("upload.before")
            try:
                written = await files.upload_inputs(self._tools, self._run, self._server, self._work)
            except Withheld:
                await self._out.release()
            except ComfyError as error:
                if isinstance(error, ServerAnswered) and error.status == 413:
                    await self._out.refuse(
                        failure("input_too_large", f"the server refuses an input of this size: {error}")
                    )
                self._tools.fleet.trouble(self._server, f"upload: {error}")
                await self._out.release(SERVER_AWAY_S)
            except GenflowError as error:
                await self._storage_trouble(error)
            failpoints.hit("upload.after")
            if written:
                await self._ledger.upload_done(
                    self._hold, server_id=self._server.id, boot=self._server.boot, files=written
                )
            failpoints.hit("upload.after_commit")
        return files.input_names(self._work)

    # --- step 2: submit (section 5) ---

    async def _take_over(self) -> Open | None:
        """Follow the open submit that an earlier holder left, once it is known what became of its POST."""
        record = self._work.open_submit
        if record is None:
            return None
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
        settled_at = boottime() + self._tools.timing.settle_s - (self._claim.since_last_holder_s or 0.0)
        outcome = await self._found(submit, settled_at)
        if outcome is Doubt.THERE:
            await self._receipt(submit, None)
            return submit
        if outcome is Doubt.LOST:
            await self._lost(submit, accepted=False)
        else:
            await self._ledger.close_submit(
                self._hold, submit.no, SubmitState.REFUSED, reason="its POST never arrived", doubtful=True
            )
        await self._load()
        return None

    async def _submit(self, names: dict[UUID, str]) -> Open | None:
        """Write the intent down, ask, POST once, and record the receipt; None where the prompt was lost at once."""
        if not self._server.takes_new or self._run.leaving or self._run.cancel_asked:
            await self._out.release()
        failpoints.hit("submit.before_intent")
        submit = await self._intent()
        failpoints.hit("submit.after_intent")
        finding = await self._asker.clear(submit.uuid)
        if finding.adopted is not None:
            await self._adopt(submit, finding.adopted)
        if finding.known in (Known.PENDING, Known.RUNNING, Known.ENDED):
            await self._receipt(submit, None)
            return submit
        if finding.known is Known.CANT_TELL:
            self._cant_tell(finding)
            await self._out.withdraw(submit, SERVER_AWAY_S)
        failpoints.hit("submit.after_ask")
        reply = await self._post(submit, names)
        failpoints.hit("submit.before_receipt")
        accepted = await self._settle(submit, reply)
        failpoints.hit("submit.after_receipt")
        return submit if accepted else None

    async def _intent(self) -> Open:
        uuid, boot = uuid4(), self._server.boot
        try:
            intent = await self._ledger.intent(
                self._hold, submit=uuid, server_id=self._server.id, boot=boot, slots=self._server.slots
            )
        except SlotTaken:
            await self._out.release(SLOT_TAKEN_S)
        except StartByPassed:
            await self._out.release()
        return Open(intent.no, uuid, intent.attempt, boot)

    async def _post(self, submit: Open, names: dict[UUID, str]) -> PostReply:
        """POST once. Nothing cancels it in mid-air: it ends by its own time limit, and its end is always looked at."""
        listener = self._listen()
        await listener.opened()
        submit.listener = listener
        body = prompt_body(
            substitute(parse_workflow(self._work.workflow), names),
            job_id=self._hold.job_id,
            submit=submit.uuid,
            token=self._hold.token,
            client_id=listener.client_id,
            submit_no=submit.no,
            extra_data=self._work.extra_data,
        )
        limit = await room(self._tools, self._run)
        if self._run.cancel_asked:
            await self._out.withdraw(submit, 0.0)
        return await self._server.comfy.post(body, job_id=self._hold.job_id, timeout_s=limit, gate=self._gate)

    def _gate(self) -> bool:
        """The last look at the lease, before the prompt's last byte leaves."""
        allowed = self._hold.allows()
        failpoints.hit("submit.after_check")
        return allowed

    async def _settle(self, submit: Open, reply: PostReply) -> bool:
        """Turn the reply into a receipt, or send the job on its way (the table of section 5); False: lost at once."""
        log.debug("posted", job=str(self._hold.job_id), server=self._server.name, reply=reply.kind.value)
        try:
            match reply.kind:
                case Reply.ACCEPTED:
                    await self._receipt(submit, reply.number)
                case Reply.HALF_VALID:
                    await self._receipt(submit, reply.number)
                    await self._stop(submit, StopReason.HALF_VALID, from_reply(reply))
                case Reply.REFUSED if reply.error_type in ("connect", "withheld"):
                    if reply.error_type == "connect":
                        self._tools.fleet.trouble(self._server, reply.message)
                    await self._out.withdraw(submit, SERVER_AWAY_S, SubmitState.REFUSED)
                case Reply.REFUSED:
                    await self._out.fail(submit, from_reply(reply), state=SubmitState.REFUSED)
                case Reply.REFUSED_IN_FRONT:
                    refused = from_reply(reply)
                    await self._out.quarantine(refused.quarantine or refused.message)
                    await self._out.withdraw(submit, SERVER_AWAY_S, SubmitState.REFUSED)
                case Reply.SETTLED_DOUBT | Reply.OPEN_DOUBT:
                    settle_s = 0.0 if reply.kind is Reply.SETTLED_DOUBT else self._tools.timing.settle_s
                    log.warning(
                        "post_in_doubt", job=str(self._hold.job_id), server=self._server.name, why=reply.message
                    )
                    match await self._found(submit, boottime() + settle_s):
                        case Doubt.THERE:
                            await self._receipt(submit, None)
                        case Doubt.LOST:
                            await self._lost(submit, accepted=False)
                            return False
                        case Doubt.REFUSED:
                            told, doubtful = from_reply(reply), reply.kind is Reply.OPEN_DOUBT
                            await self._out.fail(submit, told, state=SubmitState.REFUSED, doubtful=doubtful)
            return True
        except NotHeld:
            if reply.kind in (Reply.ACCEPTED, Reply.HALF_VALID, Reply.SETTLED_DOUBT, Reply.OPEN_DOUBT):
                await self._ledger.late_receipt(submit.uuid, reply.number)
            raise

    async def _found(self, submit: Open, settled_at: float) -> Doubt:
        """How a doubt ends; "unknown" is believed only from `settled_at` (boottime) on.

        It is "lost" where the server started anew, or an earlier entry stands: the prompt may have run, and its end be
        gone or replaced. A server that can't tell keeps the job bound: nothing is posted while it can't be asked.
        """
        while True:
            late = boottime() >= settled_at
            finding = await self._asker.look(submit.uuid)
            if finding.known in (Known.PENDING, Known.RUNNING, Known.ENDED):
                return Doubt.THERE
            if finding.known is Known.CANT_TELL:
                self._cant_tell(finding)
                await self._out.release(SERVER_AWAY_S)
            if late and finding.adopted is not None:
                await self._adopt(submit, finding.adopted)
            if late:
                # The boot is read after the answer, never before: a restart in between would pass unseen.
                lost = finding.answer.entry is not None or await self._booted_since(submit)
                return Doubt.LOST if lost else Doubt.REFUSED
            if self._run.leaving:
                await self._out.release(handed_over=True)
            await self._run.pause(min(ASK_AGAIN_S, max(0.01, settled_at - boottime())))

    async def _receipt(self, submit: Open, number: float | None) -> None:
        client_id = None if submit.listener is None else submit.listener.client_id
        self._run.cancel_asked |= await self._ledger.receipt(self._hold, submit.no, number=number, client_id=client_id)

    # --- step 3: wait (section 6) ---

    async def _wait(self, submit: Open) -> HistoryEntry | None:
        """Poll until the run ended; its entry, or None where the prompt is lost and to be queued again."""
        failpoints.hit("wait.before")
        pace = Pace(self._tools.poll_s, self._work.policy, submit.listener, submit.running_for_s)
        seen_running, away, unreadable_since = False, 0, None
        while True:
            reason = submit.stop_reason or pace.overdue()
            if self._run.cancel_asked:
                reason = StopReason.CANCEL
            if reason is not None:
                return await self._stop(submit, reason)
            if self._run.leaving:
                await self._leave(submit)
            finding = await self._asker.look(submit.uuid)
            if finding.adopted is not None:
                await self._adopt(submit, finding.adopted)
            away = away + 1 if finding.answer.away else 0
            if finding.known is not Known.CANT_TELL:
                unreadable_since = None
            match finding.known:
                case Known.RUNNING if not seen_running:
                    pace.saw_running()
                    seen_running = submit.executed = True
                    self._run.cancel_asked |= await self._ledger.running(
                        self._hold, submit.no, deadline_s=self._deadline_s
                    )
                    failpoints.hit("wait.running")
                case Known.ENDED if finding.answer.entry is not None:
                    return await self._ended(submit, finding.answer.entry)
                case Known.UNKNOWN:
                    await self._lost(submit, accepted=finding.answer.entry is None)
                    return None
                case Known.CANT_TELL if away >= AWAY_ASKS:
                    self._cant_tell(finding)
                    await self._out.release(SERVER_AWAY_S)
                case Known.CANT_TELL if not finding.answer.away:
                    unreadable_since = unreadable_since or boottime()
                    if boottime() - unreadable_since > self._work.policy.run_timeout_s:
                        told = failure("server_unreadable", f"{self._server.name}: {finding.answer.why}")
                        await self._out.fail(submit, told, state=SubmitState.ABANDONED, executed=submit.executed)
            await self._run.pause(pace.next_poll_s())

    @property
    def _deadline_s(self) -> float:
        """Seconds after which SQL takes the job from a holder whose heart beats but who makes nothing of it."""
        return self._work.policy.run_timeout_s + self._tools.stop_grace_s + 60.0

    async def _ended(self, submit: Open, entry: HistoryEntry, told: Failure | None = None) -> HistoryEntry:
        """The run is over: a checkpoint where it succeeded, else the judgement of section 9."""
        failpoints.hit("wait.before_commit")
        if entry.outcome == "success" and told is None:
            self._run.cancel_asked |= await self._ledger.run_ended(self._hold, submit.no, entry)
            self._tools.fleet.free_slot(self._server, self._hold.job_id)
            failpoints.hit("wait.after_commit")
            return entry
        if entry.outcome == "error" and entry.error is not None:
            told = told or from_execution(entry.error)
        elif told is None:
            told = failure("interrupted", "somebody else interrupted the run at its server")
        await self._out.fail(submit, told, entry=entry, executed=True)

    async def _lost(self, submit: Open, *, accepted: bool) -> None:
        """It was queued, or may have been, and nobody knows it: queue the same id again, a limited number of times."""
        restarted = await self._booted_since(submit)
        lost = failure("lost", f"{self._server.name} no longer knows the prompt")
        if restarted or not accepted:
            lost = replace(lost, quarantine=None)
        elif lost.quarantine:
            await self._out.quarantine(lost.quarantine)
        decision = decide(
            lost,
            self._work.policy,
            attempts_spent=submit.attempt,
            resubmits=self._work.resubmits,
            oom_seen=False,
        )
        if decision.then is Then.DEAD:
            await self._out.fail(submit, decision.failure, state=SubmitState.LOST, executed=submit.executed)
        log.warning("prompt_lost", job=str(self._hold.job_id), server=self._server.name, restarted=restarted)
        await self._ledger.close_submit(
            self._hold, submit.no, SubmitState.LOST, reason=lost.message, resubmit=True, doubtful=not accepted
        )
        await self._quiet()

    async def _booted_since(self, submit: Open) -> bool:
        """Whether the server started anew since this submit. A probe may have seen the new boot long ago."""
        try:
            self._server.boot = await self._server.comfy.read_boot()
        except ComfyError:
            return True
        return submit.boot != self._server.boot

    async def _stop(self, submit: Open, reason: StopReason, told: Failure | None = None) -> HistoryEntry | None:
        """Stop the prompt, then judge what it left. A run that succeeded all the same is the job's result."""
        stopped = await stop_prompt(
            self._tools, self._run, self._asker, self._server, submit_no=submit.no, submit=submit.uuid, reason=reason
        )
        succeeded = stopped.entry is not None and stopped.entry.outcome == "success"
        if stopped.entry is not None and succeeded and told is None and reason is not StopReason.CANCEL:
            return await self._ended(submit, stopped.entry)
        if stopped.state is SubmitState.ABANDONED:
            await self._out.quarantine("a run would not stop")
        ran = submit.executed or stopped.entry is not None
        if reason in (StopReason.CANCEL, StopReason.SHUTDOWN):
            state = State.CANCELED if reason is StopReason.CANCEL else State.QUEUED
            outcome = "canceled" if reason is StopReason.CANCEL else "given_back"
            await self._out.end(
                submit, state, stopped.state, entry=stopped.entry, executed=ran, spend=False, outcome=outcome
            )
        told = told or self._out.told_of(reason)
        await self._out.fail(submit, told, state=stopped.state, entry=stopped.entry, executed=ran)

    async def _adopt(self, submit: Open, entry: HistoryEntry) -> NoReturn:
        """An earlier submit of this job succeeded after all: that is the job's result, and nothing runs again."""
        log.warning("adopted", job=str(self._hold.job_id), server=self._server.name, said="already in /history")
        await self._ledger.run_ended(self._hold, submit.no, entry, executed=submit.executed)
        self._tools.fleet.free_slot(self._server, self._hold.job_id)
        await self._download(entry.outputs, None)

    # --- step 4: download ---

    async def _download(self, outputs: dict[str, object], record: SubmitRecord | None) -> NoReturn:
        """Bring every output into the store and commit the result. Its failures cost no run: only this is retried."""
        failpoints.hit("download.before")
        found = walk_outputs(outputs)
        wanted = files.results(found)
        if found and not wanted:
            await self._out.no_result("the workflow only makes temporary previews; add a SaveImage node", again=False)
        if not wanted:
            await self._out.no_result("the run succeeded without any output", again=True)
        stored: list[StoredOutput] = []
        try:
            while True:
                stored = [await files.store_output(self._tools, self._run, self._server, output) for output in wanted]
                failpoints.hit("download.before_commit")
                state = await self._ledger.finish(self._hold, stored)
                if state is not None:
                    break
                await self._run.pause(ASK_AGAIN_S)
        except OutputGone as error:
            await self._out.no_result(str(error), again=True)
        except ServerUnreachable as error:
            self._tools.fleet.trouble(self._server, f"download: {error}")
            await self._collect_later(str(error), record)
        except ComfyError as error:
            await self._collect_later(str(error), record)
        except GenflowError as error:
            if not files.is_storage_trouble(error):
                raise
            await self._collect_later(error.message, record)
        failpoints.hit("download.after_commit")
        log.info(state.name.lower(), job=str(self._hold.job_id), server=self._server.name, outputs=len(stored))
        raise GivenAway

    async def _collect_later(self, why: str, record: SubmitRecord | None) -> NoReturn:
        """Try the download again after a back-off, for as long as the collect window is open."""
        if record is not None and (record.ended_ago_s or 0.0) > self._tools.collect_window_s:
            window_s = self._tools.collect_window_s
            await self._out.no_result(f"its files could not be had for {window_s:g} s: {why}", again=False)
        delay_s = min(60.0, 0.5 * 2.0 ** min(self._work.collects, 10))
        log.warning("collect_failed", job=str(self._hold.job_id), server=self._server.name, why=why, again_s=delay_s)
        await self._out.release(delay_s, collect_failed=True)

    # --- leaving ---

    def _cant_tell(self, finding: Finding) -> None:
        """A server that gave no answer gets no new work until a probe is answered."""
        if finding.answer.away:
            self._tools.fleet.trouble(self._server, finding.answer.why)

    async def _storage_trouble(self, error: GenflowError) -> NoReturn:
        if (
            isinstance(error, BlobMissing | BlobDamaged)
            and await self._tools.store.marker() == self._tools.store_marker
        ):
            # The store itself is there: no time will bring the input back.
            await self._out.refuse(failure("input_unavailable", f"an input of this job is lost: {error.message}"))
        log.warning("storage_unavailable", job=str(self._hold.job_id), why=error.message)
        await self._out.release(STORAGE_AWAY_S)

    async def _leave(self, submit: Open) -> None:
        """This worker goes away: the run goes on at its server under another holder, or is stopped."""
        if self._run.leaving == "interrupt":
            await self._stop(submit, StopReason.SHUTDOWN)
        await self._out.release(handed_over=True)

    # --- the socket ---

    def _listen(self) -> Listener:
        """A socket of this submit's own, opened ahead of its POST."""
        if self._listener is None:
            progress = Progress(parse_workflow(self._work.workflow))
            self._listener = Listener(self._server.comfy, self._run, progress, self._tools.live)
        return self._listener

    async def _quiet(self) -> None:
        """The submit is over: its socket too."""
        if self._listener is not None:
            await asyncio.shield(self._listener.close())
            self._listener = None
