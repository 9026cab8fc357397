"""The queue as a worker uses it: claims, and the fenced writes of the job it holds.

Each write locks the job's row by id, token and worker, and extends the lease in the same statement. Finding nothing
raises LeaseLost or JobCanceled; the holder then stops, and touches nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.types.json import Json

from genflow.failures import Failure
from genflow.jobs import State, StopReason, SubmitState
from genflow.protocol import HistoryEntry, Timing, boottime
from genflow.queue.abilities import ANYTHING, Ability
from genflow.queue.hold import Hold, JobCanceled, LeaseLost, NotHeld, SlotTaken, StartByPassed
from genflow.queue.records import Claim, LiveNews, StoredOutput, Work, work_of
from genflow.queue.writer import OUTAGE, Row, RowWriter

log = structlog.get_logger()

OF_MANY_ROWS = frozenset({"upload_done", "intent", "receipt", "running", "run_ended", "finish"})
"""The fenced writes on every job's way. Those of a worker's jobs share a statement where the writer gathers them."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A submit that is written down: its number within the job, and the attempt it belongs to."""

    no: int
    attempt: int


class Ledger:
    """Claims jobs for one worker and writes what becomes of them."""

    def __init__(self, writer: RowWriter, worker_id: UUID, timing: Timing, *, retention_s: float) -> None:
        self._writer = writer
        self._worker_id = worker_id
        self._timing = timing
        self._retention_s = retention_s

    # --- claims ---

    async def claim_bound(self, server_ids: Sequence[int], limit: int) -> list[tuple[Claim, Hold]]:
        """Jobs with something to follow or collect on these servers."""
        return await self._claim("claim_bound", {"servers": list(server_ids), "limit": limit})

    async def claim_unbound(
        self, server_id: int, *, slots: int, limit: int, able: Sequence[Ability] = (ANYTHING,)
    ) -> list[tuple[Claim, Hold]]:
        """Jobs for this server's free slots, at most `limit`, of the classes that it is able to run."""
        params = {
            "server": server_id,
            "slots": slots,
            "limit": limit,
            "classes": [each.class_id for each in able],
            "elsewhere": [each.elsewhere for each in able],
            "bigger": [each.bigger for each in able],
        }
        return await self._claim("claim_unbound", params) if able else []

    async def _claim(self, name: str, params: dict[str, Any]) -> list[tuple[Claim, Hold]]:
        asked_at = boottime()
        rows = await self._writer.write(name, params | {"worker": self._worker_id, "lease_s": self._timing.lease_s})
        claims = []
        for row in rows:
            hold = Hold(row["id"], row["token"], self._worker_id, self._timing)
            hold.renewed(asked_at)
            claim = Claim(
                row["id"], row["token"], row["server_id"], row["since_last_holder_s"],
                class_id=row.get("class_id", 0), previous_id=row.get("previous_id"),
                uploaded=row.get("uploaded", False),
            )  # fmt: skip
            claims.append((claim, hold))
        return claims

    async def give_back_strays(self, known: Sequence[UUID]) -> int:
        """Give back what this worker holds in the database but not in `known`; how many."""
        return len(await self._writer.write("strays", {"worker": self._worker_id, "known": list(known)}))

    @property
    def outages(self) -> int:
        """How often the database was found away: each time the answer to a claim may have been lost."""
        return self._writer.outages

    async def load(self, hold: Hold) -> Work:
        """What the job needs next."""
        rows = await self._writer.write("load_work", {"job": hold.job_id})
        if not rows:
            raise self._lose(hold, LeaseLost(hold.job_id))
        return work_of(rows[0])

    # --- fences ---

    async def _fenced(self, name: str, hold: Hold, params: Mapping[str, Any]) -> Row:
        """Run a fenced statement that answers one row while the job is held, and none when it is not."""
        asked_at = boottime()
        row = await self._send(name, hold, params)
        if row is None:
            raise await self._why_not_held(hold)
        hold.renewed(asked_at)
        return row

    async def _send(self, name: str, hold: Hold, params: Mapping[str, Any]) -> Row | None:
        if hold.lost:
            raise LeaseLost(hold.job_id)
        fence = {"job": hold.job_id, "token": hold.token}
        common = {"worker": hold.worker_id, "lease_s": self._timing.lease_s, "retention_s": self._retention_s}
        if name in OF_MANY_ROWS:
            return await self._writer.write_row(name, common, {**fence, **params})
        rows = await self._writer.write(name, {**fence, **common, **params})
        return rows[0] if rows else None

    async def _why_not_held(self, hold: Hold) -> NotHeld:
        rows = await self._writer.write("why_not_held", {"job": hold.job_id})
        canceled = bool(rows) and State(rows[0]["state"]) is State.CANCELED
        return self._lose(hold, JobCanceled(hold.job_id) if canceled else LeaseLost(hold.job_id))

    @staticmethod
    def _lose(hold: Hold, error: NotHeld) -> NotHeld:
        hold.lost = True
        return error

    # --- checkpoints ---

    async def renew(self, hold: Hold) -> bool:
        """Renew the lease now; whether a cancel is asked."""
        return (await self._fenced("renew", hold, {}))["cancel_at"] is not None

    async def upload_begun(self, hold: Hold, *, server_id: int, files: Sequence[tuple[str, bytes]]) -> None:
        """Write down, before a byte of them leaves, that these inputs (name on the server, BLAKE3) may lie there."""
        params = {"server": server_id, "names": [name for name, _ in files]}
        await self._fenced("upload_begun", hold, params | {"hashes": [digest.hex() for _, digest in files]})

    async def upload_done(
        self, hold: Hold, *, server_id: int, boot: UUID | None, files: Sequence[tuple[str, bytes]]
    ) -> None:
        """Checkpoint: these inputs (name on the server, BLAKE3) are there."""
        await self._fenced(
            "upload_done",
            hold,
            {
                "server": server_id,
                "boot": boot,
                "names": [name for name, _ in files],
                "hashes": [digest.hex() for _, digest in files],
            },
        )

    async def forget_uploads(self, hold: Hold, *, server_id: int, names: Sequence[str]) -> None:
        """These inputs, which were uploaded, are not on the server any more."""
        await self._fenced("forget_uploads", hold, {"server": server_id, "names": list(names)})

    async def intent(self, hold: Hold, *, submit: UUID, server_id: int, boot: UUID | None, slots: int) -> Intent:
        """Write the submit down. Raises SlotTaken, StartByPassed, or JobCanceled where a cancel came first."""
        params = {"submit": submit, "server": server_id, "boot": boot, "slots": slots}
        asked_at = boottime()
        try:
            row = await self._send("intent", hold, params)
        except pg.UniqueViolation:
            row = {"no": None}
        if row is None or row["no"] is None:
            # Sent again after a lost commit, it met itself: its own slot taken, or a cancel that came since.
            row = await self._send("submit_by_uuid", hold, {"submit": submit}) or row
        if row is not None and row["no"] is not None:
            hold.renewed(asked_at)
            return Intent(row["no"], row["attempt"])
        if row is not None:
            raise SlotTaken
        state = await self._writer.write("why_not_held", {"job": hold.job_id})
        if state and state[0]["token"] == hold.token and state[0]["worker_id"] == hold.worker_id:
            if state[0]["cancel_at"] is not None:
                raise JobCanceled(hold.job_id)
            if state[0]["start_by_passed"]:
                raise StartByPassed
        raise await self._why_not_held(hold)

    async def receipt(self, hold: Hold, no: int, *, number: float | None, client_id: str | None) -> bool:
        """Checkpoint: the server has the prompt. Whether a cancel is asked."""
        row = await self._fenced("receipt", hold, {"no": no, "number": number, "client_id": client_id})
        return row["cancel_at"] is not None

    async def late_receipt(self, submit: UUID, number: float | None) -> None:
        """Leave evidence that a prompt may have reached its server after the lease was lost."""
        await self._writer.write("late_receipt", {"submit": submit, "number": number})

    async def running(self, hold: Hold, no: int, *, deadline_s: float) -> bool:
        """Checkpoint: seen running; `deadline_s` until hung work is taken away. Whether a cancel is asked."""
        row = await self._fenced("running", hold, {"no": no, "deadline_s": deadline_s})
        return row["cancel_at"] is not None

    async def stop_asked(self, hold: Hold, no: int, reason: StopReason) -> None:
        """Write down why the run is about to be stopped."""
        await self._fenced("stop_asked", hold, {"no": no, "reason": reason.value})

    async def keep_here(self, hold: Hold, no: int) -> None:
        """A prompt that was to be taken back runs: nothing stops it."""
        await self._fenced("keep_here", hold, {"no": no})

    async def close_submit(
        self, hold: Hold, no: int, state: SubmitState, *, reason: str, doubtful: bool = False, resubmit: bool = False
    ) -> int:
        """End a submit without a run and keep the job; how often it was resubmitted."""
        row = await self._fenced(
            "close_submit",
            hold,
            {"no": no, "state": int(state), "reason": reason, "doubtful": doubtful, "resubmit": resubmit},
        )
        resubmits: int = row["resubmits"]
        return resubmits

    async def run_ended(self, hold: Hold, no: int, entry: HistoryEntry, *, executed: bool = True) -> bool:
        """Checkpoint: the run ended well (`executed`: this submit's own). Whether a cancel is asked."""
        row = await self._fenced(
            "run_ended",
            hold,
            {
                "no": no,
                "executed": executed,
                "entry": _kept_text(entry),
                "exec_start_ms": entry.exec_start_ms,
                "exec_end_ms": entry.exec_end_ms,
            },
        )
        return row["cancel_at"] is not None

    async def earlier_ran(self, hold: Hold, submit: UUID, entry: HistoryEntry) -> None:
        """Keep the entry of an earlier submit of this job, which is about to be deleted at the server."""
        await self._fenced(
            "earlier_ran",
            hold,
            {
                "submit": submit,
                "entry": _kept(entry),
                "exec_start_ms": entry.exec_start_ms,
                "exec_end_ms": entry.exec_end_ms,
            },
        )

    # --- giving a job away: each moves the token, and the hold ends ---

    async def release(
        self, hold: Hold, *, delay_s: float = 0.0, collect_failed: bool = False, handed_over: bool = False
    ) -> State:
        """Give the job back without judging it."""
        row = await self._fenced(
            "release", hold, {"delay_s": delay_s, "collect_failed": collect_failed, "handed_over": handed_over}
        )
        hold.lost = True
        return State(row["state"])

    async def end_attempt(
        self,
        hold: Hold,
        *,
        state: State,
        no: int | None,
        submit_state: SubmitState = SubmitState.ENDED,
        failure: Failure | None = None,
        entry: HistoryEntry | None = None,
        executed: bool = False,
        doubtful: bool = False,
        spend: bool = True,
        attempt: int | None = None,
        delay_s: float = 0.0,
        moved: bool = False,
        outcome: str = "failed",
        avoid: bool = False,
        min_vram: int | None = None,
    ) -> State:
        """End the attempt without a result and send the job on to `state`; the state it really took (a cancel wins).

        `avoid`: another server than this one is better for the next attempt; `min_vram`: one with more than these bytes
        of memory. Both are wishes: a job is never kept waiting for a server that is not there.
        """
        row = await self._fenced(
            "end_attempt",
            hold,
            {
                "no": no,
                "submit_state": int(submit_state),
                "doubtful": doubtful,
                "executed": executed,
                "entry": None if entry is None else _kept(entry),
                "exec_start_ms": None if entry is None else entry.exec_start_ms,
                "exec_end_ms": None if entry is None else entry.exec_end_ms,
                "state": int(state),
                "spend": spend,
                "attempt": attempt,
                "delay_s": delay_s,
                "moved": moved,
                "outcome": outcome,
                "avoid": avoid,
                "min_vram": min_vram,
                "class": None if failure is None else failure.kind.value,
                "code": None if failure is None else failure.code,
                "reason": None if failure is None else failure.message,
                "node_id": None if failure is None else failure.node_id,
                "node_class": None if failure is None else failure.node_class,
                "error": None if failure is None else Json(error_of(failure)),
            },
        )
        hold.lost = True
        return State(row["state"])

    async def clock(self) -> datetime:
        """The database's time; to be read before outputs are put into the store."""
        now: datetime = (await self._writer.write("clock", {}))[0]["now"]
        return now

    async def finish(
        self, hold: Hold, outputs: Sequence[StoredOutput], *, began: datetime | None = None
    ) -> State | None:
        """Commit the result; the terminal state, or None where a blob is being cleaned up and must be stored again.

        `began` is what `clock` said before the first output was put; see take_blobs.sql.
        """
        row = await self._send("finish", hold, _columns(outputs) | {"began": began})
        if row is None:
            raise await self._why_not_held(hold)
        if row["state"] is None:
            return None
        hold.lost = True
        return State(row["state"])

    async def keep_partial(self, hold: Hold, outputs: Sequence[StoredOutput], *, began: datetime | None = None) -> None:
        """Keep what the finished nodes of a failed run gave, marked as partial; the job is still held."""
        await self._fenced("keep_partial", hold, _columns(outputs) | {"began": began})

    # --- all jobs of this worker ---

    async def heartbeat(self, holds: Sequence[Hold], *, draining: bool) -> set[UUID]:
        """Renew every lease, mark those that are gone as lost; the jobs whose cancel is asked.

        One statement for all of them. Where it fails, for a row that stays locked or whatever else, each job has one of
        its own: what is wrong with one costs no other its lease. A row that is still locked then waits for the next
        beat, neither renewed nor lost.
        """
        held = [hold for hold in holds if not hold.lost]
        try:
            return await self._beat("heartbeat", held, draining)
        except psycopg.Error as error:
            if isinstance(error, OUTAGE) and not isinstance(error, pg.LockNotAvailable):
                raise
            log.warning("heartbeat_row_by_row", jobs=len(held), why=str(error).strip()[:200])
        canceled: set[UUID] = set()
        for hold in held:
            try:
                canceled |= await self._beat("heartbeat_now", [hold], draining)
            except psycopg.Error as error:
                log.warning("lease_not_renewed", job=str(hold.job_id), why=str(error).strip()[:200])
        return canceled

    async def _beat(self, name: str, held: Sequence[Hold], draining: bool) -> set[UUID]:
        asked_at = boottime()
        rows = await self._writer.write(
            name,
            {
                "worker": self._worker_id,
                "jobs": [hold.job_id for hold in held],
                "tokens": [hold.token for hold in held],
                "lease_s": self._timing.lease_s,
                "draining": draining,
            },
        )
        renewed = {(row["id"], row["token"]) for row in rows}
        for hold in held:
            if (hold.job_id, hold.token) in renewed:
                hold.renewed(asked_at)
            else:
                hold.lost = True
        return {row["id"] for row in rows if row["cancel_at"] is not None}

    async def live_progress(self, news: Mapping[UUID, LiveNews]) -> None:
        """Write the progress of these jobs, and their newest previews, where somebody watches."""
        told = list(news.values())
        await self._writer.write(
            "live_progress",
            {
                "jobs": list(news),
                "tokens": [each.token for each in told],
                "progress": [json.dumps(each.progress) for each in told],
                "previews": [each.preview for each in told],
                "preview_nodes": [None if each.preview is None else each.preview_node for each in told],
            },
        )


def _columns(outputs: Sequence[StoredOutput]) -> dict[str, Any]:
    return {
        "ids": [output.id for output in outputs],
        "hashes": [output.hash for output in outputs],
        "sha256s": [output.sha256 for output in outputs],
        "sizes": [output.size for output in outputs],
        "nodes": [output.node_id for output in outputs],
        "keys": [output.key for output in outputs],
        "idxs": [output.index for output in outputs],
        "names": [output.name for output in outputs],
        "types": [output.type for output in outputs],
        "content_types": [output.content_type for output in outputs],
        "texts": [output.text for output in outputs],
    }


def _kept(entry: HistoryEntry) -> Json:
    return Json(_kept_text(entry), dumps=str)


def _kept_text(entry: HistoryEntry) -> str:
    return _strict_json({"outputs": entry.outputs})


def _strict_json(value: Any) -> str:
    """JSON that Postgres takes: a number that JSON has not, such as a node's own NaN, becomes null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def error_of(failure: Failure) -> dict[str, Any]:
    """A failure as the job keeps it."""
    return {
        "code": failure.code,
        "message": failure.message,
        "brief": failure.brief,
        "class": failure.kind.value,
        "node_id": failure.node_id,
        "class_type": failure.node_class,
        "traceback": failure.traceback,
    }
