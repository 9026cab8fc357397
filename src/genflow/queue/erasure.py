"""The way out: jobs and files past their time, what was asked to be erased, and the blobs that nothing refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from genflow.jobs import State
from genflow.queue.writer import Writer

BATCH = 100
"""Rows that one step takes at most."""
BLOB_LEASE_S = 120.0
"""Seconds that a blob which is being deleted is its sweeper's alone."""
SETTLE_S = 3_600.0
"""Seconds that no put takes from its last byte to its record; so long the row of a deleted blob stands."""


class Prune(StrEnum):
    """What goes by its time alone: each is a statement of its own."""

    UPLOADS = "prune_uploads"
    BATCHES = "prune_batches"
    KEYS = "prune_keys"
    RECEIPTS = "prune_receipts"
    LIVE = "prune_live"
    OBJECT_INFO = "prune_object_info"
    BLOBS = "bury_blobs"


@dataclass(frozen=True, slots=True)
class Taken:
    """Blobs whose bytes their taker deletes; `looked_at` is how many were judged, those in use among them."""

    hashes: list[bytes]
    at: datetime | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to do of a job's erasure: the job itself, and how many of its copies are on which server."""

    job: bool
    servers: list[dict[str, Any]]


class Erasure:
    """Deletes rows, and says which bytes are to go. Every method may be called by several processes at once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def ask(self, job_id: UUID, *, tenant: int = 1) -> State | None:
        """Have a job erased as soon as it is over; its state, or None for an unknown one. Idempotent."""
        rows = await self._writer.write("ask_erase", {"job": job_id, "tenant": tenant})
        return State(rows[0]["state"]) if rows else None

    async def left(self, job_id: UUID) -> Left:
        """What is left to do of a job's erasure."""
        row = (await self._writer.write("erasure_left", {"job": job_id}))[0]
        return Left(row["job"], row["servers"])

    async def past_jobs(self) -> list[UUID]:
        """Up to `BATCH` jobs that are to go."""
        return [row["id"] for row in await self._writer.write("past_jobs", {"limit": BATCH})]

    async def let_go(self, jobs: Sequence[UUID]) -> list[UUID]:
        """Delete those of the jobs that are to go; which."""
        return [row["id"] for row in await self._writer.write("let_go", {"jobs": list(jobs)})]

    async def prune(self, what: Prune) -> int:
        """Delete up to `BATCH` rows past their time; how many."""
        return len(await self._writer.write(what.value, {"limit": BATCH, "settle_s": SETTLE_S}))

    async def take_blobs(self, *, grace_s: float) -> Taken:
        """Take blobs that nothing has referred to for `grace_s` seconds; take_blobs.sql says how that is safe."""
        rows = await self._writer.write("take_blobs", {"grace_s": grace_s, "lease_s": BLOB_LEASE_S, "limit": BATCH})
        going = [row for row in rows if row["state"] == 2]
        return Taken([bytes(row["hash"]) for row in going], going[0]["touched_at"] if going else None, len(rows))

    async def gone(self, taken: Taken) -> None:
        """The bytes of these are deleted."""
        await self._writer.write("gone_blobs", {"hashes": taken.hashes, "taken_at": taken.at})

    async def doom_orphans(self, hashes: Sequence[bytes]) -> int:
        """Have those of the blobs in the store that have no row taken next; how many."""
        return len(await self._writer.write("doom_orphans", {"hashes": list(hashes)}))
