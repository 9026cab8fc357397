"""Hints from other processes over LISTEN: there is work, somebody cancels, a server's lists may be old.

The polls are the truth without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import psycopg
import structlog

from genflow.loops import cut_off

log = structlog.get_logger()

RECONNECT_S = 1.0


class Hints:
    """Listens on one connection of its own, again and again through outages."""

    def __init__(
        self,
        conninfo: str,
        *,
        on_queued: Callable[[], None],
        on_cancel: Callable[[UUID], None],
        on_watch: Callable[[list[UUID]], None],
        on_listening: Callable[[bool], None],
        on_learn: Callable[[], None],
    ) -> None:
        self._conninfo = conninfo
        self._on_queued = on_queued
        self._on_cancel = on_cancel
        self._on_watch = on_watch
        self._on_listening = on_listening
        self._on_learn = on_learn
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._listen(), name="hints")

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            await cut_off([self._task])

    async def _listen(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, connect_timeout=10)
                async with connection:
                    await connection.execute("listen genflow")
                    await connection.execute("select pg_notify('genflow', 'listening')")
                    self._on_queued()  # what came while nobody listened
                    async for note in connection.notifies():
                        self._take(note.payload)
            except psycopg.Error as error:
                log.debug("hints_lost", why=str(error).strip())
            self._on_listening(False)
            await asyncio.sleep(RECONNECT_S)

    def _take(self, payload: str) -> None:
        kind, _, rest = payload.partition(":")
        if kind == "queued":
            self._on_queued()
        elif kind == "learn":
            self._on_learn()
        elif kind == "listening":
            self._on_listening(True)  # a word of our own, or of another who listens, came through
        elif kind in ("cancel", "watch"):
            try:
                jobs = [UUID(each) for each in rest.split(",")]
            except ValueError:
                log.warning("hint_malformed", payload=payload[:100])
                return
            if kind == "watch":
                self._on_watch(jobs)
            else:
                self._on_cancel(jobs[0])
