"""One look at a server: does it answer, how much stands before a new prompt, has it started anew."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from genflow.comfy import ComfyError, ComfyServer, Device, ServerAnswered


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answered probe saw."""

    depth: int
    boot: UUID
    jobs_route: bool
    guard: bool
    """Whether genflow's guard stands there."""
    device: Device | None


class Unanswered(Exception):
    """A probe that was not answered in time or in the right words; the text says why."""


async def probe(comfy: ComfyServer, *, within_s: float, stats: bool) -> Seen:
    """Look at a server, in at most `within_s` seconds; `stats` asks what it runs on too. Raises Unanswered."""
    try:
        async with asyncio.timeout(within_s):
            depth = await comfy.depth()
            boot = await comfy.read_boot()
            jobs_route = await comfy.has_jobs_route()
            guard = await comfy.has_guard()
            return Seen(depth, boot, jobs_route, guard, await _device(comfy) if stats else None)
    except TimeoutError:
        raise Unanswered(f"no answer within {within_s:g} s") from None
    except ComfyError as error:
        raise Unanswered(str(error) or type(error).__name__) from error


async def _device(comfy: ComfyServer) -> Device | None:
    try:
        return await comfy.device()
    except ServerAnswered:
        return None  # it may hide that behind a proxy, and still run prompts
