"""Stopping one prompt at its server: say why, call, and ask until it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import structlog

from genflow import failpoints
from genflow.comfy import ComfyError
from genflow.fleet import FleetServer
from genflow.jobs import StopReason, SubmitState
from genflow.protocol import HistoryEntry, Known, boottime
from genflow.worker.asking import Asker, room
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools

log = structlog.get_logger()

ASK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Stopped:
    """How the prompt ended: with its entry, without one (taken back before it ran), or not at all (abandoned)."""

    state: SubmitState
    entry: HistoryEntry | None


async def stop_prompt(
    tools: Tools, run: JobRun, asker: Asker, server: FleetServer, *, submit_no: int, submit: UUID, reason: StopReason
) -> Stopped:
    """Stop this submit's prompt and wait until the server let go of it.

    `stop_grace` stands still while the server can't be asked; a cancel whose server stays away for a minute, like a
    prompt that won't stop, is abandoned: a chore stops it when the server is back.
    """
    await tools.ledger.stop_asked(run.hold, submit_no, reason)
    failpoints.hit("cancel.before_stop")
    log.info("stopping", job=str(run.hold.job_id), server=server.name, reason=reason.value)
    asked_for, unreachable_since = 0.0, None
    while True:
        began = boottime()
        try:
            await server.comfy.cancel(run.hold.job_id, timeout_s=await room(tools, run))
        except ComfyError as error:
            log.debug("stop_not_answered", job=str(run.hold.job_id), server=server.name, why=str(error))
        finding = await asker.look(submit)
        match finding.known:
            case Known.ENDED:
                return Stopped(SubmitState.ENDED, finding.answer.entry)
            case Known.UNKNOWN:
                return Stopped(SubmitState.WITHDRAWN, None)
            case Known.CANT_TELL:
                unreachable_since = unreachable_since or began
                if reason is StopReason.CANCEL and boottime() - unreachable_since > tools.cancel_unreachable_s:
                    return Stopped(SubmitState.ABANDONED, None)
            case _:
                unreachable_since = None
        await run.pause(ASK_EVERY_S)
        if unreachable_since is None:
            asked_for += boottime() - began
        if asked_for > tools.stop_grace_s:
            return Stopped(SubmitState.ABANDONED, None)
