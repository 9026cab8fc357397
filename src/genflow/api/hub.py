"""Watchers of jobs in one process share one look into the database.

The database is asked, not listened to: that is right also behind a transaction pooler, after an outage, and whichever
worker runs the job. A look asks for one text a job, and only jobs whose text changed are read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from genflow.api.looking import Looking
from genflow.jobs import Status
from genflow.loops import happens
from genflow.protocol import boottime
from genflow.queue import Queue
from genflow.queue.records import JobView
from genflow.queue.watches import WATCHED_S, LivePreview

POSITION_S = 2.0
"""Seconds between two looks at the place of a job in the queue, which changes without the job."""


class Watcher:
    """One who watches a job: the newest that is known of it. What comes in between is left out."""

    def __init__(self) -> None:
        self.view: JobView | None = None
        self.preview: LivePreview | None = None
        self.over = False
        """Whether nothing more will come: the job is gone, or this process ends."""
        self._news = asyncio.Event()

    def tell(self) -> None:
        """Something is new."""
        self._news.set()

    async def news(self, within_s: float) -> bool:
        """Wait for something new; False where nothing came within these seconds."""
        if not await happens(self._news, within_s):
            return False
        self._news.clear()
        return True


class Hub:
    """Looks for all watchers of this process."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._watchers: dict[UUID, set[Watcher]] = {}
        self._pulses: dict[UUID, str] = {}
        self._looking = Looking("watched jobs", lambda: bool(self._watchers), self._look)
        self._asked_at = -math.inf
        self._placed_at = -math.inf
        self._closed = False

    @property
    def watching(self) -> int:
        """How many watchers there are."""
        return sum(map(len, self._watchers.values()))

    @contextmanager
    def watch(self, job_id: UUID) -> Iterator[Watcher]:
        """Watch a job, which the caller found to be one that may be watched, for as long as the context is open."""
        watcher = Watcher()
        watcher.over = self._closed
        self._watchers.setdefault(job_id, set()).add(watcher)
        self._pulses.pop(job_id, None)  # the new one knows nothing yet
        self._asked_at = -math.inf
        self._looking.begin()
        try:
            yield watcher
        finally:
            watchers = self._watchers[job_id]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[job_id]
                self._pulses.pop(job_id, None)

    async def close(self) -> None:
        """End all watching: this process ends, and the watchers may ask another one."""
        self._closed = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.over = True
                watcher.tell()
        await self._looking.stop()

    async def _look(self) -> None:
        jobs = list(self._watchers)
        now = boottime()
        if now - self._asked_at > WATCHED_S / 2:
            self._asked_at = now
            await self._queue.watches.watch(jobs)
        pulses = await self._queue.watches.pulse(jobs)
        changed = {job for job, pulse in pulses.items() if self._pulses.get(job) != pulse}
        # What a job looked like counts as told once it was: a look that fails in between is made up for by the next.
        self._pulses = {job: pulse for job, pulse in pulses.items() if job not in changed}
        if now - self._placed_at > POSITION_S:
            self._placed_at = now
            changed |= {job for job in pulses if self._is_queued(job)}
        if changed:
            views = await self._queue.watches.views(list(changed))
            pictured = [job for job, view in views.items() if view.preview_no > self._preview_no(job)]
            previews = await self._queue.watches.previews(pictured)
            for job, view in views.items():
                self._tell(job, view, previews.get(job))
                if job in self._watchers:
                    self._pulses[job] = pulses[job]
        for job in set(jobs) - set(pulses):
            for watcher in self._watchers.get(job, ()):
                watcher.over = True
                watcher.tell()

    def _tell(self, job: UUID, view: JobView, preview: LivePreview | None) -> None:
        for watcher in self._watchers.get(job, ()):
            watcher.view = view
            watcher.preview = preview or watcher.preview
            watcher.tell()

    def _is_queued(self, job: UUID) -> bool:
        views = [each.view for each in self._watchers.get(job, ())]
        return any(view is not None and view.status is Status.QUEUED for view in views)

    def _preview_no(self, job: UUID) -> int:
        """The preview that all watchers of this job have."""
        return min((each.preview.no if each.preview else 0 for each in self._watchers.get(job, ())), default=0)
