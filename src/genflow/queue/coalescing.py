"""One worker's writes, gathered: what waits at the same time goes out as one statement, one commit.

A group commit. A row that comes while no statement of its kind is on its way is sent at once, so that a single job
waits for nobody; while one is, what comes is collected for the next. The waiting jobs go on once it is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from genflow.queue.writer import OUTAGE, DirectWriter, Row, of_a_row

log = structlog.get_logger()

ROWS_AT_ONCE = 64
"""The most rows of one statement: more take as long, and wait longer for the rows that are locked."""


@dataclass(slots=True)
class _Waiting:
    row: Mapping[str, Any]
    answer: asyncio.Future[Row | None]

    def answered(self, row: Row | None) -> None:
        if not self.answer.done():  # its caller was cut off
            self.answer.set_result(row)

    def fails(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class _Gate:
    """Statements of one kind go one after another."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    sender: asyncio.Task[None] | None = None


class CoalescingWriter:
    """Sends the rows that wait for one statement together; everything else goes straight to `direct`.

    For the jobs of one worker. A statement that fails, for a row that stays locked or whatever else, is sent again row
    by row: what is wrong with one job is told to that one, and costs no other its write.
    """

    def __init__(self, direct: DirectWriter, *, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._direct = direct
        self._rows_at_once = rows_at_once
        self._gates: dict[tuple[object, ...], _Gate] = {}
        self._lone: set[asyncio.Task[None]] = set()

    @property
    def outages(self) -> int:
        """How often a statement met a lost connection and was sent again."""
        return self._direct.outages

    async def write(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """Run `name` by itself."""
        return await self._direct.write(name, params)

    async def write_row(self, name: str, common: Mapping[str, Any], row: Mapping[str, Any]) -> Row | None:
        """Run `name` for this row, and for those that wait beside it. One whose caller is cut off may still be sent."""
        gate = self._gates.setdefault((name, *common.values()), _Gate())
        waiting = _Waiting(row, asyncio.get_running_loop().create_future())
        gate.waiting.append(waiting)
        if gate.sender is None:
            gate.sender = asyncio.create_task(self._send(name, common, gate), name=f"write {name}")
        return await waiting.answer

    async def _send(self, name: str, common: Mapping[str, Any], gate: _Gate) -> None:
        try:
            while batch := self._next(gate):
                await self._together(name, common, batch)
        finally:
            gate.sender = None
            for each in gate.waiting:  # none, but where the process ends
                each.answer.cancel()
            gate.waiting.clear()

    def _next(self, gate: _Gate) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while gate.waiting and len(batch) < self._rows_at_once:
            each = gate.waiting.popleft()
            if not each.answer.done():
                batch.append(each)
        return batch

    async def _together(self, name: str, common: Mapping[str, Any], batch: Sequence[_Waiting]) -> None:
        try:
            answers = await self._direct.write_rows(name, common, [each.row for each in batch])
        except Exception as error:
            outage = isinstance(error, OUTAGE)
            waits = outage and of_a_row(error)  # it is sent again, for as long as through an outage
            if not waits and (outage or len(batch) == 1):
                for each in batch:
                    each.fails(error)
                return
            log.info("write_row_by_row", statement=name, jobs=len(batch), why=str(error).strip()[:200])
            for each in batch:  # not waited for: the next statement goes on without them
                task = asyncio.create_task(self._alone(name, common, each), name=f"write {name} alone")
                self._lone.add(task)
                task.add_done_callback(self._lone.discard)
        else:
            for each, answer in zip(batch, answers, strict=True):
                each.answered(answer)

    async def _alone(self, name: str, common: Mapping[str, Any], waiting: _Waiting) -> None:
        try:
            waiting.answered(await self._direct.write_row(name, common, waiting.row))
        except Exception as error:
            waiting.fails(error)
