"""The fleet as a person looks at it and steers it: servers, workers, and how things stand in one look."""

from __future__ import annotations

from datetime import UTC

from genflow.errors import GenflowError, clean_text
from genflow.queue.registry import ServerState
from genflow.queue.writer import Row, Writer

LATELY_S = 60.0
"""Seconds within which a worker's word on a server counts."""
_TOLD = 20


def why_bound(story: Row) -> str | None:
    """Why a job waits that belongs to one server, by its row of job_story.sql: that is away, or takes no new work.

    None where the server is well: then a worker goes on with the job in a moment.
    """
    name, state = story["server"], ServerState(story["server_state"])
    there = f"its prompt or its files are on {name}, which"
    if state is ServerState.FORGOTTEN:
        return f"it was on {name}, which is forgotten: it goes elsewhere in a moment"
    if not story["server_seen"]:
        at = story["server_seen_at"]
        since = "yet" if at is None else f"since {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{there} no worker has seen {since}: start that server or its worker again, or give it up with:"
            f" genflow servers forget {name}"
        )
    if state in (ServerState.QUARANTINED, ServerState.DRAINING):
        said = f" ({story['server_reason']})" if story["server_reason"] else ""
        return f"{there} is {state.name.lower()}{said}: it ends there, nothing new does"
    return None


class Servers:
    """Lists the fleet, and takes servers out of it and back."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def listed(self, *, forgotten: bool = False) -> list[Row]:
        """The servers by name, as server_list.sql tells them."""
        return await self._writer.write("server_list", {"lately_s": LATELY_S, "forgotten": forgotten})

    async def workers(self) -> list[Row]:
        """The workers by name, as worker_list.sql tells them."""
        return await self._writer.write("worker_list", {"lately_s": LATELY_S})

    async def status(self) -> Row:
        """One row of status.sql."""
        return (await self._writer.write("status", {}))[0]

    async def drain(self, name: str, reason: str) -> None:
        """No new submit goes there from now on; what it has goes on. GenflowError `not_found`."""
        if not await self._writer.write("drain", {"name": name, "reason": reason}):
            raise await self._unknown(name)

    async def resume(self, name: str) -> None:
        """It takes new submits again, whether it was drained or quarantined. GenflowError `not_found`."""
        if not await self._writer.write("resume", {"name": name}):
            raise await self._unknown(name)
        await self._writer.write("announce", {})

    async def forget(self, name: str, *, seen: bool = False) -> int:
        """Take it as gone for good: its jobs go elsewhere, counted; how many were freed at once.

        GenflowError `not_found`, or `server_alive` where a worker saw it healthy lately, unless `seen` says that this
        is known.
        """
        if not await self._writer.write("forget", {"name": name, "seen": seen, "lately_s": LATELY_S}):
            if name in {row["name"] for row in await self.listed(forgotten=True)}:
                raise GenflowError(
                    "server_alive",
                    f"the server {name} was seen healthy a moment ago: what runs there may run a second time elsewhere."
                    " Drain it instead, or say --yes",
                    status=409,
                    details={"field": "name", "got": name},
                )
            raise await self._unknown(name)
        freed = await self._writer.write("give_up_lost", {"unseen_s": None, "limit": 10_000})
        await self._writer.write("announce", {})
        return len(freed)

    async def _unknown(self, name: str) -> GenflowError:
        known = [str(row["name"]) for row in await self.listed()]
        told = ", ".join(known[:_TOLD]) or "none"
        shown = clean_text(name, 120)
        return GenflowError(
            "not_found", f"There is no server {shown}; known servers: {told}.", status=404,
            details={"field": "name", "got": shown},
        )  # fmt: skip
