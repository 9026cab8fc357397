"""What jobs need of a server, as the queue keeps it: one class for each set of needs, and what the servers have."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from genflow.needs import Needs, closest_lack, needs_from_json, needs_of
from genflow.protocol import boottime
from genflow.queue.abilities import KEPT, Known
from genflow.queue.writer import Writer

KNOWN_S = 2.0
"""Seconds for which what the servers have is taken as known when jobs come in."""
SMALL = 64 * 1024
"""Characters of workflows that are read without a thread."""


class Classes:
    """Tells what workflows need, as far as the fleet's servers are known, and finds the number for it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known = Known(writer, whole=True)
        self._known_at = -math.inf
        self._merged: tuple[frozenset[bytes], dict[str, Any]] | None = None
        self._ids: dict[bytes, int] = {}

    async def object_info(self) -> dict[str, Any] | None:
        """What the fleet's servers together have, as last seen; None when nothing is known yet."""
        await self._look()
        bodies = self._known.bodies
        if self._merged is None or self._merged[0] != frozenset(bodies):
            self._merged = (frozenset(bodies), {name: node for body in bodies.values() for name, node in body.items()})
        return self._merged[1] if bodies else None

    async def of(self, workflows: Sequence[str]) -> list[int]:
        """The class of each of these workflows, written down where it is new; 0 = any server will do."""
        if boottime() - self._known_at > KNOWN_S:
            await self._look()
        if sum(map(len, workflows)) <= SMALL:
            needs = self._read(workflows)
        else:
            needs = await asyncio.to_thread(self._read, workflows)
        if len(self._ids) > KEPT:
            self._ids.clear()
        ids = self._ids
        new = {each.hash: each for each in needs if each and each.hash not in ids}
        if new:
            rows = await self._writer.write(
                "classes_of",
                {"hashes": list(new), "needs": [json.dumps(each.as_json()) for each in new.values()]},
            )
            ids.update((bytes(row["needs_hash"]), row["id"]) for row in rows)
        return [ids[each.hash] if each else 0 for each in needs]

    async def why_none(self, needs: Mapping[str, Any]) -> str | None:
        """Why no known server can run a class with these needs, or None where one can."""
        await self._look()
        return closest_lack(needs_from_json(needs), list(self._known.capabilities.values()))

    def _read(self, workflows: Sequence[str]) -> list[Needs]:
        known = list(self._known.capabilities.values())
        return [needs_of(json.loads(workflow), known) for workflow in workflows]

    async def _look(self) -> None:
        rows = await self._writer.write("known_object_info_hashes", {})
        await self._known.use([bytes(row["hash"]) for row in rows])
        self._known_at = boottime()
