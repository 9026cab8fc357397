"""Retention: what is past its time goes, with its bytes. Every process does it, in small steps with long pauses.

Each step is safe beside the same step of another process, and after a crash the next round goes on: names go before
their job's row, bytes before their blob's row, and both are looked for again as long as the row stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog

from genflow import failpoints
from genflow.errors import GenflowError
from genflow.loops import Loop
from genflow.protocol import boottime
from genflow.queue.erasure import BATCH, BLOB_LEASE_S, Erasure, Prune
from genflow.storage.store import Store

log = structlog.get_logger()

ROUND_S = 5.0
"""Seconds between two looks at what is past its time."""
ORPHANS_S = 6 * 3_600.0
"""Seconds between two walks through the store for bytes without a row."""
ORPHAN_AGE_S = 86_400.0
"""Seconds since their last put after which bytes without a row are nobody's."""
HURRIED_BATCHES = 10
"""Batches of blobs that one erasure looks at; those in a hurry come first."""
IDLE = 3.0
"""A step is followed by a pause so many times as long: the queue has the database first."""
PAUSE_S = 0.02
"""The shortest such pause, in seconds."""


class Retention:
    """The steps. `grace_s`: seconds that bytes are kept which nothing refers to."""

    def __init__(self, erasure: Erasure, store: Store, *, grace_s: float) -> None:
        self._erasure = erasure
        self._store = store
        self._grace_s = grace_s

    def loops(self) -> list[Loop]:
        """What a process runs."""
        return [Loop("retention", ROUND_S, self.round), Loop("orphans", ORPHANS_S, self.orphans)]

    async def round(self) -> None:
        """All that is past its time now."""
        await _paced(self._past_jobs)
        for what in Prune:
            await _paced(lambda what=what: self._erasure.prune(what))  # type: ignore[misc]
        await _paced(self.blobs)

    async def let_go(self, jobs: Sequence[UUID]) -> list[UUID]:
        """Delete those of the jobs that are over and to go, and their names in the store; which."""
        for job in jobs:
            await self._store.unname(str(job))
        failpoints.hit("erase.before_delete")
        return await self._erasure.let_go(jobs)

    async def _past_jobs(self) -> int:
        jobs = await self._erasure.past_jobs()
        gone = await self.let_go(jobs)
        if gone:
            log.info("jobs_gone", jobs=len(gone))
        return len(gone)

    async def blobs(self) -> int:
        """Delete the bytes of a batch of blobs that nothing needs; how many blobs were judged.

        GenflowError `storage_unavailable`; what was not deleted then is taken again later.
        """
        asked_at = boottime()
        taken = await self._erasure.take_blobs(grace_s=self._grace_s)
        failpoints.hit("blobs.after_take")
        for hash in taken.hashes:
            if boottime() > asked_at + BLOB_LEASE_S / 2:
                return taken.looked_at  # they may be another's by now
            await self._store.delete(hash)
        failpoints.hit("blobs.after_delete")
        if taken.hashes:
            await self._erasure.gone(taken)
            log.info("blobs_gone", blobs=len(taken.hashes))
        return taken.looked_at

    async def hurried_blobs(self) -> bool:
        """Delete the bytes that nobody is to wait for; whether that is done. Others are left to the next round."""
        for _ in range(HURRIED_BATCHES):
            if await self.blobs() < BATCH:
                return True
        return False

    async def orphans(self) -> None:
        """Find bytes that a crash left in the store without a row; the next rounds delete them."""
        found: list[bytes] = []
        async for hash in self._store.old(ORPHAN_AGE_S):
            found.append(hash)
            if len(found) == BATCH:
                await self._doom(found)
                found = []
                await asyncio.sleep(PAUSE_S)
        await self._doom(found)

    async def _doom(self, found: Sequence[bytes]) -> None:
        if found and (doomed := await self._erasure.doom_orphans(found)):
            log.info("orphans_found", blobs=doomed)


async def _paced(step: Callable[[], Awaitable[int]]) -> None:
    """Take a step again and again for as long as it finds a full batch, idle between."""
    while True:
        began = boottime()
        try:
            found = await step()
        except GenflowError as error:
            log.warning("retention_postponed", why=error.message)
            return
        if found < BATCH:
            return
        await asyncio.sleep(max(PAUSE_S, IDLE * (boottime() - began)))
