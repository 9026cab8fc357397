"""What jobs need of a server, as the queue keeps it: one class for each set of needs, and what the servers have."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from genflow.needs import Needs, closest_lack, needs_from_json, needs_of
from genflow.protocol import boottime
from genflow.queue.abilities import KEPT, LATELY_S, Known
from genflow.queue.writer import Row, Writer
from genflow.validation import FleetNodes

KNOWN_S = 2.0
"""Seconds for which what the servers have is taken as known when jobs come in."""
FRESH_S = 5.0
"""Seconds for which what a server said that it has is fresh enough to refuse a job by."""
ANEW_S = 2.0
"""Most seconds that a refusal waits for the servers to be asked anew."""
LOOK_AGAIN_S = 0.05
SMALL = 64 * 1024
"""Characters of workflows that are read without a thread."""


class Classes:
    """Tells what workflows need, as far as the fleet's servers are known, and finds the number for it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known = Known(writer, whole=True)
        self._known_at = -math.inf
        self._nodes: tuple[frozenset[bytes], FleetNodes] | None = None
        self._anew = asyncio.Lock()
        self._ids: dict[bytes, int] = {}

    async def nodes(self, *, now: bool = False) -> FleetNodes | None:
        """What the fleet's servers have, as seen within `KNOWN_S` seconds, or `now`; None when nothing is known yet."""
        if now or boottime() - self._known_at > KNOWN_S or not self._known.bodies:
            await self._look()
        known = self._known
        if self._nodes is None or self._nodes[0] != frozenset(known.bodies):
            nodes = FleetNodes(tuple(known.bodies.values()), tuple(known.capabilities.values()))
            self._nodes = (frozenset(known.bodies), nodes)
        return self._nodes[1] if known.bodies else None

    async def ask_anew(self, hint: Callable[[str], Awaitable[None]]) -> None:
        """Have the workers ask the servers what they have, unless they did so a moment ago.

        Returns once all of those that are up have answered, after `ANEW_S` seconds at most. `hint` tells the workers.
        """
        async with self._anew:  # many refusals at once are one question
            asked = await self._unlearned(None)
            if not asked["unlearned"]:
                return
            await hint("learn")
            until = boottime() + ANEW_S
            while boottime() < until:
                await asyncio.sleep(LOOK_AGAIN_S)  # their answers come by the database, which has no event for us
                if not (await self._unlearned(asked["now"]))["unlearned"]:
                    return

    async def _unlearned(self, since: datetime | None) -> Row:
        params = {"since": since, "fresh_s": FRESH_S, "lately_s": LATELY_S}
        return (await self._writer.write("unlearned", params))[0]

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
