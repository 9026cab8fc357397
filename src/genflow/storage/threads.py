"""Threads of a store's own: file work and hashing, each piece to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = 8


class Threads:
    """A few threads that one store shares among its calls."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage")

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Run in a thread, to its end: also when we are cancelled, so that no file is closed under a writer."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        await to_its_end(future)
        return future.result()


async def to_its_end(future: asyncio.Future[T], on_cancel: Callable[[], None] | None = None) -> None:
    """Wait until it is done, whatever its end; a cancellation of ours is raised only then, after `on_cancel` ran."""
    canceled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            canceled = error
            if on_cancel is not None:
                on_cancel()
    if canceled is not None:
        if not future.cancelled():
            future.exception()  # seen
        raise canceled
