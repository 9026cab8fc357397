"""The events of one submit: hints that quicken a poll, never a proof.

The socket is opened before the prompt is posted, with a client id of its own; it is opened again only after this side
saw the old one closed, for the server forgets the new socket when an old one of the same id closes after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

import structlog

from genflow.comfy import ComfyError, ComfyServer, QueueDepth, RunEnded
from genflow.loops import cut_off, happens
from genflow.protocol import boottime
from genflow.worker.live import LiveProgress
from genflow.worker.progress import Progress
from genflow.worker.run import JobRun

log = structlog.get_logger()

OPEN_S = 3.0
"""Seconds until the prompt is posted without a socket."""
REOPEN_S = 2.0
"""Seconds between two tries to open a lost socket again."""


class Listener:
    """Listens for one submit and wakes its job when the run may have ended."""

    def __init__(
        self, server: ComfyServer, run: JobRun, progress: Progress, live: LiveProgress, on_lost: Callable[[], None]
    ) -> None:
        self.client_id = str(uuid4())
        self.last_event_at: float | None = None
        """When this socket last told something of the run (boottime seconds); None while it never did."""
        self._server = server
        self._run = run
        self._job_id: UUID = run.hold.job_id
        self._live = live
        self._on_lost = on_lost
        self._opened = asyncio.Event()
        live.begin(run.hold, progress)
        self._task = asyncio.create_task(self._listen())

    async def opened(self) -> None:
        """Wait until the socket is open, or has failed to open, or `OPEN_S` seconds passed."""
        await happens(self._opened, OPEN_S)

    async def close(self) -> None:
        """Close the socket and wait until it is gone."""
        await cut_off([self._task])
        self._live.end(self._job_id)

    async def _listen(self) -> None:
        while True:
            was_open = False
            try:
                async with self._server.watch(self.client_id) as events:
                    was_open = True
                    self._opened.set()
                    async for event in events:
                        if isinstance(event, QueueDepth) or event.job_id not in (None, self._job_id):
                            continue
                        self.last_event_at = boottime()
                        self._live.take(self._job_id, event)
                        if isinstance(event, RunEnded):
                            self._run.wake.set()
            except ComfyError as error:
                log.debug("no_socket", job=str(self._job_id), server=self._server.name, why=str(error))
            if was_open:
                self._on_lost()
            self._opened.set()
            self.last_event_at = None  # silence counts only while a socket is open
            self._run.wake.set()
            await asyncio.sleep(REOPEN_S)
