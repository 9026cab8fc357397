"""Which classes of queued jobs each server of the fleet can run, as the database tells it.

A job's class is what its workflow needs (`genflow.needs`); what a server has is its `/object_info`, kept by hash. The
kinds of jobs that are queued and the state of the servers are looked at again and again; what a hash or a class number
means never changes and is read once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from genflow.needs import Capabilities, Needs, closest_lack, needs_from_json
from genflow.protocol import boottime
from genflow.queue.writer import Row, Writer
from genflow.workflow import needed_by

log = structlog.get_logger()

CLASSES = 200
"""Classes of queued jobs that are found in one look; of more, others each time."""
SEEN = 1_000
"""Classes that are claimed at a time, those seen last."""
SEEN_S = 60.0
"""Seconds that a class counts as queued after it was seen: a job of it may be queued again at once."""
KEPT = 4_000
"""Classes whose needs are kept in memory."""
LATELY_S = 30.0
"""Seconds since a worker saw a server healthy, within which it counts as one that jobs may go to."""


@dataclass(frozen=True, slots=True)
class Ability:
    """A class of jobs that a server can run; what else could run it decides whether the server may be avoided."""

    class_id: int
    elsewhere: bool = False
    """Whether another server could take it too."""
    bigger: int | None = None
    """The most memory, in bytes, of another server that could take it."""


ANYTHING = Ability(0)


@dataclass(frozen=True, slots=True)
class _Server:
    id: int
    ready: bool
    vram: int | None
    capabilities: bytes | None


class Known:
    """What servers have, by hash, read from the database once each; only hashes in use are kept."""

    def __init__(self, writer: Writer, *, whole: bool) -> None:
        self._writer = writer
        self._whole = whole
        self.bodies: dict[bytes, dict[str, Any]] = {}
        """The descriptions themselves, where they are wanted `whole`."""
        self.capabilities: dict[bytes, Capabilities] = {}

    async def use(self, hashes: Sequence[bytes]) -> None:
        """Have these and no others."""
        missing = [each for each in hashes if each not in self.capabilities]
        for row in await self._writer.write("known_object_info", {"hashes": missing}) if missing else []:
            body, capabilities = await asyncio.to_thread(_read, row["body"])
            self.capabilities[bytes(row["hash"])] = capabilities
            if self._whole:
                self.bodies[bytes(row["hash"])] = body
        for each in set(self.capabilities) - set(hashes):
            del self.capabilities[each]
            self.bodies.pop(each, None)


def _read(text: str) -> tuple[dict[str, Any], Capabilities]:
    body = json.loads(text)
    return body, Capabilities(body)


class Abilities:
    """One worker's view of who can run what."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known = Known(writer, whole=False)
        self._needs: dict[int, Needs] = {}
        self._can_run: dict[tuple[int, bytes], bool] = {}
        self._after = -1
        self._seen: dict[int, float] = {}
        self._servers: dict[int, _Server] = {}
        self._of: dict[int, list[Ability]] = {}
        self._told: set[int] = set()

    async def look(self) -> bool:
        """Read which classes are queued and how the servers are, and say once which class no known server can run.

        Whether anything may wait for any server: False once all classes were looked at and nothing is queued.
        """
        began = self._after
        rows = await self._writer.write("queued_classes", {"after": began, "limit": CLASSES})
        self._after = rows[-1]["class_id"] if len(rows) == CLASSES else -1
        servers = [_server_of(row) for row in await self._writer.write("fleet_view", {"lately_s": LATELY_S})]
        self._servers = {server.id: server for server in servers}
        await self._known.use([each.capabilities for each in servers if each.capabilities is not None])
        self._note([row["class_id"] for row in rows])
        await self._learn()
        self._of.clear()
        self._tell({row["class_id"]: row["head"] for row in rows})
        return bool(rows) or began != -1

    def of(self, server_id: int) -> list[Ability]:
        """The queued classes that a server can run."""
        if server_id not in self._of:
            asked = self._servers.get(server_id)
            classes = [] if asked is None else [each for each in self._seen if self._can(asked, each)]
            self._of[server_id] = [self._ability(each, server_id) for each in classes]
        return self._of[server_id]

    def can(self, server_id: int, class_id: int) -> bool:
        """Whether a server can run jobs of a class."""
        return server_id in self._servers and self._can(self._servers[server_id], class_id)

    def _ability(self, class_id: int, asked: int) -> Ability:
        others = [v for v in self._servers.values() if v.id != asked and v.ready and self._can(v, class_id)]
        return Ability(class_id, bool(others), max((v.vram for v in others if v.vram is not None), default=None))

    def _can(self, server: _Server, class_id: int) -> bool:
        """A server of which nothing is known may try, and so may any where the class's needs are not to be had."""
        needs, digest = self._needs.get(class_id), server.capabilities
        if needs is None or digest is None or digest not in self._known.capabilities:
            return True
        if (class_id, digest) not in self._can_run:
            self._can_run[class_id, digest] = not self._known.capabilities[digest].lacks(needs)
        return self._can_run[class_id, digest]

    def _note(self, queued: list[int]) -> None:
        """Remember these as seen just now, the last in the dict, and forget what was not seen for long."""
        now = boottime()
        for class_id in queued:
            self._seen.pop(class_id, None)
            self._seen[class_id] = now
        kept = [(class_id, at) for class_id, at in self._seen.items() if now - at < SEEN_S]
        self._seen = dict(kept[-SEEN:])

    async def _learn(self) -> None:
        if len(self._needs) > KEPT:
            self._needs.clear()
        if len(self._can_run) > KEPT * (1 + len(self._known.capabilities)):
            self._can_run.clear()
        unread = [each for each in self._seen if each and each not in self._needs]
        for row in await self._writer.write("class_needs", {"classes": unread}) if unread else []:
            self._needs[row["id"]] = needs_from_json(row["needs"])

    def will_run(self, server_id: int, graph: Mapping[str, Any]) -> Collection[str]:
        """The nodes of this workflow that the server will run; all where it is not known which make outputs."""
        server = self._servers.get(server_id)
        hash = None if server is None else server.capabilities
        known = None if hash is None else self._known.capabilities.get(hash)
        outputs = [] if known is None else [node for node, each in graph.items() if known.is_output(each["class_type"])]
        return needed_by(graph, outputs) if outputs else graph

    def _tell(self, queued: Mapping[int, UUID]) -> None:
        if any(server.capabilities is None for server in self._servers.values()):
            return  # that one may be able
        known = list(self._known.capabilities.values())
        for class_id, head in queued.items():
            why = None if class_id not in self._needs else closest_lack(self._needs[class_id], known)
            if why is None:
                self._told.discard(class_id)
            elif class_id not in self._told and len(self._told) < KEPT:
                self._told.add(class_id)
                log.warning("no_server_is_able", job=str(head), class_id=class_id, why=why)


def _server_of(row: Row) -> _Server:
    found = row["capabilities_hash"]
    return _Server(row["id"], row["ready"], row["vram"], None if found is None else bytes(found))
