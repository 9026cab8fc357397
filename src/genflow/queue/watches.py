"""Jobs that somebody watches: what changed, what they look like, and that their holders are to tell more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from genflow.queue.records import JobView, view_of
from genflow.queue.writer import Writer

WATCHED_S = 15.0
"""Seconds for which a holder writes live progress after somebody looked."""
TOLD_AT_ONCE = 200
"""Jobs in one statement: their ids must fit into one notification, of 8,000 bytes at most."""


@dataclass(frozen=True, slots=True)
class LivePreview:
    """A picture from inside a run: a JPEG, and the node that it is of. `no` grows with every one."""

    no: int
    node_id: str
    jpeg: bytes = field(repr=False)


class Watches:
    """What the watchers of many jobs need, in few statements."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def watch(self, jobs: Sequence[UUID]) -> None:
        """Have the holders of these jobs write live progress for `WATCHED_S` seconds."""
        for start in range(0, len(jobs), TOLD_AT_ONCE):
            some = list(jobs[start : start + TOLD_AT_ONCE])
            await self._writer.write("watch", {"jobs": some, "watched_s": WATCHED_S})

    async def pulse(self, jobs: Sequence[UUID]) -> dict[UUID, str]:
        """For each job that is still there a text, which changes when the job does."""
        return {row["id"]: row["pulse"] for row in await self._writer.write("pulse", {"jobs": list(jobs)})}

    async def views(self, jobs: Sequence[UUID]) -> dict[UUID, JobView]:
        """These jobs as clients see them, whosever they are: their watchers were let in before."""
        rows = await self._writer.write("job_view", {"jobs": list(jobs), "tenant": None})
        return {row["id"]: view_of(row) for row in rows}

    async def previews(self, jobs: Sequence[UUID]) -> dict[UUID, LivePreview]:
        """The newest preview of each of these jobs that has one."""
        rows = await self._writer.write("previews", {"jobs": list(jobs)}) if jobs else []
        return {
            row["job_id"]: LivePreview(row["preview_no"], row["preview_node"] or "", bytes(row["preview"]))
            for row in rows
        }
