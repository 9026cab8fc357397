"""What a worker's runs tell while somebody watches them: progress and the newest preview, a few times a second.

Who watches a job tells all workers by a hint, again and again. A worker that hears no hints takes every job for
watched, and the statement itself leaves out those that are not.
"""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

import structlog
from PIL import Image, UnidentifiedImageError

from genflow.comfy import Event, Preview
from genflow.protocol import boottime
from genflow.queue import Hold, Ledger
from genflow.queue.records import LiveNews
from genflow.queue.watches import WATCHED_S
from genflow.worker.progress import Progress

log = structlog.get_logger()

FLUSH_S = 0.5
"""Seconds between two writes of live progress: twice a second is what the Comfy API v2 shows."""
WATCHED_JOBS = 10_000
"""Watched jobs of the whole installation that one worker keeps in mind."""
PREVIEW_BYTES = 8 * 1024 * 1024
"""Larger previews are left out."""
PREVIEW_SIDE = 768
"""Longest side of a preview that is passed on, in pixels."""
_PREVIEW_PIXELS = 16_000_000
_QUALITY = 80


@dataclass(frozen=True, slots=True)
class _Run:
    hold: Hold
    progress: Progress

    def news(self, preview: bytes | None = None, node: str = "") -> LiveNews:
        """What there is to write now."""
        return LiveNews(self.hold.token, self.progress.snapshot(), preview, node)


class LiveProgress:
    """Writes the newest progress of all watched runs of a worker, in one statement."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs: dict[UUID, _Run] = {}
        self._news: set[UUID] = set()
        self._previews: dict[UUID, tuple[str, str, bytes]] = {}
        self._last: dict[UUID, LiveNews] = {}
        self._wake = asyncio.Event()
        self._watched: dict[UUID, float] = {}
        self.listening = False
        """Whether hints come in: else every job counts as watched."""

    def begin(self, hold: Hold, progress: Progress) -> None:
        """A run of this job begins to tell."""
        self._runs[hold.job_id] = _Run(hold, progress)

    def end(self, job_id: UUID) -> None:
        """No more is told of this job here; what was told last is still written."""
        run = self._runs.pop(job_id, None)
        if run is not None and job_id in self._news and self._is_watched(job_id):
            self._last[job_id] = run.news()
        self._previews.pop(job_id, None)

    def take(self, job_id: UUID, event: Event) -> None:
        """Something was told of this job's run."""
        run = self._runs.get(job_id)
        if run is None:
            return
        if isinstance(event, Preview):
            if self._is_watched(job_id) and len(event.image) <= PREVIEW_BYTES:
                node = event.node_id or run.progress.current or ""
                self._previews[job_id] = (node, event.content_type, event.image)
                self._note(job_id)
        elif run.progress.take(event):
            self._note(job_id)

    def _note(self, job_id: UUID) -> None:
        self._news.add(job_id)
        self._wake.set()

    def watch(self, jobs: Collection[UUID]) -> None:
        """Somebody watches these jobs for the next `WATCHED_S` seconds."""
        until = boottime() + WATCHED_S
        for job_id in jobs:
            new = not self._is_watched(job_id)
            self._watched.pop(job_id, None)
            self._watched[job_id] = until
            if new and job_id in self._runs:
                self._note(job_id)
        while self._watched and (
            len(self._watched) > WATCHED_JOBS or self._watched[next(iter(self._watched))] < boottime()
        ):
            del self._watched[next(iter(self._watched))]

    def _is_watched(self, job_id: UUID) -> bool:
        return not self.listening or self._watched.get(job_id, -math.inf) > boottime()

    async def loop(self) -> None:
        """Write what is new, for as long as the worker runs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if news := await self._gathered():
                    await self._ledger.live_progress(news)
            except Exception:
                log.exception("live_progress_not_written", next="genflow health")
            await asyncio.sleep(FLUSH_S)

    async def _gathered(self) -> dict[UUID, LiveNews]:
        told, self._last = self._last, {}
        previews, self._previews = self._previews, {}
        news, self._news = self._news, set()
        for job_id in [each for each in news if self._is_watched(each)]:
            run = self._runs.get(job_id)
            if run is None:
                continue
            picture, node = None, ""
            if job_id in previews:
                node, content_type, image = previews[job_id]
                picture = await asyncio.to_thread(as_jpeg, content_type, image)
            told[job_id] = run.news(picture, node)
        return told


def as_jpeg(content_type: str, image: bytes) -> bytes | None:
    """A preview as the JPEG that is passed on; None where it can't be read. Blocks while it decodes."""
    try:
        with Image.open(io.BytesIO(image), formats=("JPEG", "PNG")) as opened:
            if content_type == "image/jpeg" and opened.format == "JPEG" and max(opened.size) <= PREVIEW_SIDE:
                return image
            if opened.width * opened.height > _PREVIEW_PIXELS:
                return None
            opened.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
            out = io.BytesIO()
            opened.convert("RGB").save(out, "JPEG", quality=_QUALITY)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError,
            Image.DecompressionBombError, Image.DecompressionBombWarning):  # fmt: skip
        return None
    return out.getvalue()
