"""How a submit ended, and what follows: the judgement of section 9, a stop, and a prompt that its server forgot."""

from __future__ import annotations

from dataclasses import replace

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError
from genflow.failures import QUARANTINES, Failure, FailureClass, Then, decide, failure, from_execution
from genflow.jobs import State, StopReason, SubmitState
from genflow.protocol import HistoryEntry
from genflow.telemetry import metrics
from genflow.worker.asking import room
from genflow.worker.endings import Open
from genflow.worker.held import HeldJob
from genflow.worker.stopping import stop_prompt
from genflow.worker.telling import Overdue

log = structlog.get_logger()


class Judging:
    """Judges the submits of one held job."""

    def __init__(self, job: HeldJob) -> None:
        self._job = job

    async def ended(self, submit: Open, entry: HistoryEntry, told: Failure | None = None) -> HistoryEntry:
        """The run is over: a checkpoint where it succeeded, else the judgement of section 9."""
        failpoints.hit("wait.before_commit")
        server = self._job.server.name
        metrics.RUNS.labels(server, entry.outcome).inc()
        if entry.seconds is not None:
            metrics.RUN_SECONDS.labels(server).observe(entry.seconds)
        self._job.ran_from(entry.seconds or 0.0)
        if entry.outcome == "success" and told is None:
            self._job.run.cancel_asked |= await self._job.ledger.run_ended(self._job.hold, submit.no, entry)
            self._job.tools.fleet.free_slot(self._job.server, self._job.id)
            failpoints.hit("wait.after_commit")
            return entry
        if entry.outcome == "error" and entry.error is not None:
            told = told or from_execution(entry.error)
            if told.kind is FailureClass.OOM:
                await self._free()
        elif told is None:
            told = failure("interrupted", "somebody else interrupted the run at its server")
        await self._job.out.fail(submit, told, entry=entry, executed=True)

    async def _free(self) -> None:
        """Have the server drop its models and caches before the next try. It does so once it is idle."""
        server = self._job.server
        try:
            limit_s = await room(self._job.tools, self._job.run)
            await server.comfy.free(timeout_s=limit_s)
            waits_for = await server.comfy.depth()
        except ComfyError as error:
            log.warning("not_freed", job=str(self._job.id), server=server.name, why=str(error))
        else:
            log.info("freed", job=str(self._job.id), server=server.name, once_these_are_done=waits_for)

    async def lost(self, submit: Open, *, accepted: bool) -> None:
        """It was queued, or may have been, and nobody knows it: queue the same id again, a limited number of times."""
        restarted = await self._job.booted_since(submit)
        lost = failure("lost", f"{self._job.server.name} no longer knows the prompt")
        if restarted or not accepted:
            lost = replace(lost, quarantine=None)
        elif lost.quarantine:
            await self._job.out.quarantine(lost.quarantine)
        decision = decide(
            lost,
            self._job.work.policy,
            attempts_spent=submit.attempt,
            resubmits=self._job.work.resubmits,
            oom_seen=False,
        )
        if decision.then is Then.DEAD:
            await self._job.out.fail(submit, decision.failure, state=SubmitState.LOST, executed=submit.executed)
        log.warning("prompt_lost", job=str(self._job.id), server=self._job.server.name, restarted=restarted)
        await self._job.ledger.close_submit(
            self._job.hold, submit.no, SubmitState.LOST, reason=lost.message, resubmit=True, doubtful=not accepted
        )
        metrics.RESUBMITS.inc()
        await self._job.quiet()

    async def stop(self, submit: Open, reason: StopReason, told: Failure | None = None) -> HistoryEntry | None:
        """Stop the prompt, then judge what it left. A run that succeeded all the same is the job's result."""
        if reason in (StopReason.TIMEOUT, StopReason.SILENCE) and submit.stop_reason is None:
            policy = self._job.work.policy
            limit_s = policy.run_timeout_s if reason is StopReason.TIMEOUT else policy.silence_timeout_s
            self._job.tools.tell(Overdue(self._job.id, submit.attempt, self._job.server.given, limit_s))
        stopped = await stop_prompt(
            self._job.tools,
            self._job.run,
            self._job.asker,
            self._job.server,
            submit_no=submit.no,
            submit=submit.uuid,
            reason=reason,
        )
        succeeded = stopped.entry is not None and stopped.entry.outcome == "success"
        if stopped.entry is not None and succeeded and told is None and reason is not StopReason.CANCEL:
            return await self.ended(submit, stopped.entry)
        if stopped.state is SubmitState.ABANDONED:
            await self._job.out.quarantine(QUARANTINES["would_not_stop"])
        ran = submit.executed or stopped.entry is not None
        if reason in (StopReason.CANCEL, StopReason.SHUTDOWN):
            state = State.CANCELED if reason is StopReason.CANCEL else State.QUEUED
            outcome = "canceled" if reason is StopReason.CANCEL else "given_back"
            await self._job.out.end(
                submit, state, stopped.state, entry=stopped.entry, executed=ran, spend=False, outcome=outcome
            )
        told = told or self._job.out.told_of(reason)
        await self._job.out.fail(submit, told, state=stopped.state, entry=stopped.entry, executed=ran)
