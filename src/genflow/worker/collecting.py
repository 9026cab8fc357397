"""Step 4, download: every output into the store, and the result committed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

import structlog

from genflow import failpoints
from genflow.backoff import doubling
from genflow.comfy import ComfyError, OutputGone, ServerUnreachable
from genflow.errors import GenflowError
from genflow.jobs import State
from genflow.outputs import walk_outputs
from genflow.protocol import HistoryEntry, Known, boottime
from genflow.queue.records import StoredOutput, SubmitRecord
from genflow.telemetry import metrics
from genflow.worker import files
from genflow.worker.endings import Open
from genflow.worker.held import HeldJob
from genflow.worker.run import GivenAway
from genflow.worker.telling import AlreadyThere, Done

log = structlog.get_logger()

REFUSED_AGAIN_S = 1.0
"""Seconds until an output is stored again whose bytes clean-up was deleting."""


class Collecting:
    """Brings the result of one held job home."""

    def __init__(self, job: HeldJob) -> None:
        self._job = job

    async def adopt(self, submit: Open, entry: HistoryEntry) -> NoReturn:
        """An earlier submit of this job succeeded after all: that is the job's result, and nothing runs again."""
        log.warning("adopted", job=str(self._job.id), server=self._job.server.name, said="already in /history")
        self._job.tools.tell(AlreadyThere(self._job.id, submit.attempt, self._job.server.given))
        await self._job.ledger.run_ended(self._job.hold, submit.no, entry, executed=submit.executed)
        self._job.tools.fleet.free_slot(self._job.server, self._job.id)
        await self.download(entry.outputs, entry.submit)

    async def download(
        self, outputs: dict[str, Any], submit: UUID | None, record: SubmitRecord | None = None
    ) -> NoReturn:
        """Bring every output into the store and commit the result. Its failures cost no run: only this is retried.

        `submit` is whose run it was. Where a file is gone, the names are tried that its server has for that run by now:
        a prompt that the network delivered twice ran twice, and its second run replaced the entry of the first.
        """
        failpoints.hit("download.before")
        collecting_since = boottime()
        found = walk_outputs(outputs)
        wanted = files.results(found, previews=self._job.tools.previews)
        if found and not wanted:
            await self._job.out.no_result(
                "the workflow only makes temporary previews; add a SaveImage node", again=False
            )
        if not wanted:
            await self._job.out.no_result("the run succeeded without any output", again=True)
        stored: list[StoredOutput] = []
        try:
            while True:
                began = await self._job.ledger.clock()
                stored = [
                    await files.store_output(self._job.tools, self._job.run, self._job.server, output)
                    for output in wanted
                ]
                named = {f"{output.node_id}-{output.name}": output.hash for output in stored}
                with suppress(GenflowError):  # a convenience, on which no job depends
                    await self._job.tools.store.name(str(self._job.id), named)
                failpoints.hit("download.before_commit")
                state = await self._job.ledger.finish(self._job.hold, stored, began=began)
                if state is not None:
                    break
                await self._job.run.pause(REFUSED_AGAIN_S)
        except OutputGone as error:
            others = await self._other_names(submit, outputs, record)
            if others is not None:
                log.info("other_names", job=str(self._job.id), server=self._job.server.name, why=str(error))
                await self.download(others, None, record)
            await self._job.out.no_result(str(error), again=True)
        except ServerUnreachable as error:
            self._job.tools.fleet.trouble(self._job.server, f"download: {error}")
            await self._later(str(error), record)
        except ComfyError as error:
            await self._later(str(error), record)
        except GenflowError as error:
            if not files.is_storage_trouble(error):
                raise
            metrics.STORAGE_ERRORS.labels("download").inc()
            await self._later(error.message, record)
        failpoints.hit("download.after_commit")
        metrics.JOBS_ENDED.labels(state.name.lower()).inc()
        metrics.COLLECT_SECONDS.observe(boottime() - collecting_since)
        log.info(state.name.lower(), job=str(self._job.id), server=self._job.server.name, outputs=len(stored))
        if state is State.CANCELED:
            await self._job.tools.store.unname(str(self._job.id))
        if state is State.SUCCEEDED:
            self._job.tools.tell(Done(self._job.id, self._job.attempt, self._job.server.given, stored))
        raise GivenAway

    async def _other_names(
        self, submit: UUID | None, tried: dict[str, Any], record: SubmitRecord | None
    ) -> dict[str, Any] | None:
        """The outputs that the server shows for this submit now, where they are others than those that were tried."""
        if submit is None:
            return None
        answer = (await self._job.asker.look(submit)).answer
        if answer.known is Known.CANT_TELL:
            await self._later(f"a file is gone, and the server can't tell of another: {answer.why}", record)
        entry = answer.entry if answer.known is Known.ENDED else None
        return None if entry is None or entry.outcome != "success" or entry.outputs == tried else entry.outputs

    async def _later(self, why: str, record: SubmitRecord | None) -> NoReturn:
        """Try the download again after a back-off, for as long as the collect window is open."""
        if record is not None and (record.ended_ago_s or 0.0) > self._job.tools.collect_window_s:
            window_s = self._job.tools.collect_window_s
            await self._job.out.no_result(f"its files could not be had for {window_s:g} s: {why}", again=False)
        delay_s = doubling(self._job.work.collects, base_s=0.5, cap_s=60.0)
        log.warning("collect_failed", job=str(self._job.id), server=self._job.server.name, why=why, again_s=delay_s)
        await self._job.out.release(delay_s, collect_failed=True)
