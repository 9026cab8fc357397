"""The ways out of an attempt. Each writes what became of it, fenced, and then raises GivenAway."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError, OutputGone
from genflow.errors import GenflowError
from genflow.failures import MAY_LACK_INPUT, Failure, Then, decide, failure
from genflow.fleet import FleetServer
from genflow.jobs import State, StopReason, SubmitState
from genflow.outputs import walk_outputs
from genflow.protocol import HistoryEntry
from genflow.queue.records import StoredOutput, Work
from genflow.telemetry import metrics
from genflow.worker import files
from genflow.worker.listening import Listener
from genflow.worker.run import GivenAway, JobRun
from genflow.worker.telling import AttemptFailed, DeadLettered
from genflow.worker.tools import Tools

log = structlog.get_logger()

SERVER_AWAY_S = 1.0
"""Seconds until a job is tried again whose server gave no answer."""


INPUTS_LOOK_S = 10.0
"""Longest time, in seconds, for which a failed job's server is asked whether it still has the job's inputs."""
PARTIAL_S = 60.0
"""Longest time, in seconds, that the outputs of a failed run's finished nodes hold up its dead letter."""
ELSEWHERE = ("cuda_fault", "would_not_stop", "out_of_memory")
"""Failures after which the next attempt is better made on another server."""


@dataclass(slots=True)
class Open:
    """The submit that is being followed."""

    no: int
    uuid: UUID
    attempt: int
    boot: UUID | None
    """The boot of the server that it went to."""
    executed: bool = False
    running_for_s: float | None = None
    """Seconds since it was first seen running, by whichever holder."""
    stop_reason: StopReason | None = None
    listener: Listener | None = None


class Endings:
    """Sends one held job on its way."""

    def __init__(self, tools: Tools, run: JobRun, server: FleetServer, work: Work) -> None:
        self._tools = tools
        self._run = run
        self._server = server
        self._work = work
        self._log = log.bind(job=str(run.hold.job_id), server=server.name)

    async def fail(
        self,
        submit: Open,
        told: Failure,
        *,
        state: SubmitState = SubmitState.ENDED,
        entry: HistoryEntry | None = None,
        executed: bool = False,
        doubtful: bool = False,
    ) -> NoReturn:
        """The attempt failed: retry or dead letter, as failures.py decides."""
        if told.code in MAY_LACK_INPUT and self._work.inputs:
            told = await self._unless_input_gone(told)
        decision = decide(
            told,
            self._work.policy,
            attempts_spent=submit.attempt,
            resubmits=self._work.resubmits,
            oom_seen=self._work.oom_attempts > 0,
        )
        if decision.failure.quarantine:
            await self.quarantine(decision.failure.quarantine)
        after = State.FAILED
        if decision.then is Then.DEAD and entry is not None:
            await self._keep_partial(entry)
        if decision.then is not Then.DEAD:
            after = State.WAITING if decision.delay_s > 0 else State.QUEUED
        self._log.warning(
            "attempt_failed",
            attempt=submit.attempt,
            code=decision.failure.code,
            then=decision.then.value,
            delay_s=round(decision.delay_s, 2),
            next=f"genflow {'dead' if decision.then is Then.DEAD else 'jobs'} show {self._run.hold.job_id}",
        )
        await self.end(
            submit,
            after,
            state,
            failed=decision.failure,
            entry=entry,
            executed=executed,
            doubtful=doubtful,
            delay_s=decision.delay_s,
            avoid=decision.failure.code in ELSEWHERE,
            min_vram=self._server.vram if decision.failure.code == "out_of_memory" else None,
        )

    async def _unless_input_gone(self, told: Failure) -> Failure:
        """`told`, or that an input is gone from the server, as where somebody cleans its input folder.

        That is no fault of the job: the next attempt uploads it again.
        """
        try:
            async with asyncio.timeout(INPUTS_LOOK_S):
                gone = await files.inputs_gone(self._server, self._work)
        except (ComfyError, TimeoutError):
            return told
        if not gone:
            return told
        await self._tools.ledger.forget_uploads(self._run.hold, server_id=self._server.id, names=gone)
        return failure(
            "input_gone",
            f"an input of this job was deleted on {self._server.name} while the job was there",
            node_id=told.node_id,
            node_class=told.node_class,
        )

    async def _keep_partial(self, entry: HistoryEntry) -> None:
        """What finished nodes gave is kept beside the failure, as far as it can be had soon."""
        wanted = files.results(walk_outputs(entry.outputs), previews=self._tools.previews)
        stored: list[StoredOutput] = []
        began = await self._tools.ledger.clock()
        try:
            async with asyncio.timeout(PARTIAL_S):
                for output in wanted:
                    with suppress(OutputGone):
                        stored.append(await files.store_output(self._tools, self._run, self._server, output))
        except (ComfyError, GenflowError, TimeoutError) as error:
            self._log.info("partial_outputs_left", why=str(error), kept=len(stored), of=len(wanted))
        if stored:
            await self._tools.ledger.keep_partial(self._run.hold, stored, began=began)

    async def refuse(self, told: Failure) -> NoReturn:
        """The job can't be run as it is, and nothing of it was submitted: a dead letter, and no attempt spent."""
        self._log.warning("refused", code=told.code, next=f"genflow dead show {self._run.hold.job_id}")
        ended = await self._tools.ledger.end_attempt(
            self._run.hold, state=State.FAILED, no=None, failure=told, spend=False
        )
        self._dead(ended, told)
        raise GivenAway

    async def quarantine(self, reason: str) -> None:
        """Keep new work from the server, as the job's holder: a lease that is lost judges nobody (raises LeaseLost)."""
        await self._tools.ledger.renew(self._run.hold)
        await self._tools.fleet.quarantine(self._server, reason)

    def told_of(self, reason: StopReason) -> Failure:
        """The failure of a run that was stopped for this reason."""
        if reason is StopReason.HALF_VALID:
            return failure("half_valid", "ComfyUI would run only a part of the workflow")
        code, limit = ("silence_timeout", self._work.policy.silence_timeout_s)
        if reason is StopReason.TIMEOUT:
            code, limit = ("run_timeout", self._work.policy.run_timeout_s)
        brief = f"timed out after {limit:g} s" if reason is StopReason.TIMEOUT else f"silent for {limit:g} s"
        return failure(code, f"the run was stopped on {self._server.name} after {limit:g} s", brief=brief)

    async def withdraw(
        self,
        submit: Open,
        delay_s: float = 0.0,
        state: SubmitState = SubmitState.WITHDRAWN,
        *,
        moved: bool = False,
    ) -> NoReturn:
        """Nothing is queued: give the submit and its attempt's number back, and the job to whoever can."""
        after = State.WAITING if delay_s > 0 else State.QUEUED
        await self.end(submit, after, state, delay_s=delay_s, spend=False, moved=moved, outcome="given_back")

    async def end(
        self,
        submit: Open,
        after: State,
        state: SubmitState,
        *,
        failed: Failure | None = None,
        entry: HistoryEntry | None = None,
        executed: bool = False,
        doubtful: bool = False,
        delay_s: float = 0.0,
        spend: bool = True,
        moved: bool = False,
        outcome: str = "failed",
        avoid: bool = False,
        min_vram: int | None = None,
    ) -> NoReturn:
        """End the attempt and its submit in one transaction; a cancel that was asked wins over `after`."""
        failpoints.hit("end.before_commit")
        ended = await self._tools.ledger.end_attempt(
            self._run.hold,
            state=after,
            no=submit.no,
            submit_state=state,
            failure=failed,
            entry=entry,
            executed=executed,
            doubtful=doubtful,
            attempt=submit.attempt,
            delay_s=delay_s,
            spend=spend,
            moved=moved,
            outcome=outcome,
            avoid=avoid,
            min_vram=min_vram,
        )
        failpoints.hit("end.after_commit")
        if failed is not None:
            metrics.ATTEMPTS_FAILED.labels(failed.kind.value, failed.code).inc()
        if ended.terminal:
            metrics.JOBS_ENDED.labels(ended.name.lower()).inc()
            self._log.info(ended.name.lower())
        if failed is not None and not self._dead(ended, failed) and ended is not State.CANCELED:
            self._tools.tell(AttemptFailed(self._run.hold.job_id, submit.attempt, self._server.given, failed, delay_s))
        raise GivenAway

    def _dead(self, ended: State, failed: Failure) -> bool:
        """Whether the job ended as a dead letter; then that is told."""
        if ended is State.FAILED:
            self._tools.tell(DeadLettered(self._run.hold.job_id, failed))
        return ended is State.FAILED

    async def no_result(self, why: str, *, again: bool) -> NoReturn:
        """The run succeeded and gave nothing: one more run where that may help (`again`), else a dead letter."""
        work = await self._tools.ledger.load(self._run.hold)
        decision = decide(
            failure("output_gone", why),
            work.policy,
            attempts_spent=work.attempt,
            resubmits=work.resubmits,
            oom_seen=False,
            forced_runs=work.gone_attempts if again else 1,
        )
        state = State.FAILED if decision.then is Then.DEAD else State.QUEUED
        self._log.warning("output_gone", why=why, now=state.name.lower())
        ended = await self._tools.ledger.end_attempt(
            self._run.hold, state=state, no=None, attempt=work.attempt, failure=decision.failure
        )
        self._dead(ended, decision.failure)
        raise GivenAway

    async def release(
        self, delay_s: float = 0.0, *, handed_over: bool = False, collect_failed: bool = False
    ) -> NoReturn:
        """Give the job back without judging it: bound where its submit is open or its run is to be collected."""
        failpoints.hit("release.before")
        await self._tools.ledger.release(
            self._run.hold, delay_s=delay_s, handed_over=handed_over, collect_failed=collect_failed
        )
        raise GivenAway
