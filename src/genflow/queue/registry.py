"""Which workers and servers there are, as all of them know it through Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from genflow.errors import GenflowError
from genflow.queue.writer import Row, Writer


class ServerState(IntEnum):
    """What the fleet thinks of a server; follow-ups of open submits are never kept out."""

    READY = 1
    QUARANTINED = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """A server's state and its reason."""

    state: ServerState
    reason: str | None


class Registry:
    """Presents one worker and its servers, and reads the fleet."""

    def __init__(self, writer: Writer, worker_id: UUID) -> None:
        self._writer = writer
        self._worker_id = worker_id

    async def register_worker(self, *, name: str, host: str, version: str) -> None:
        """Make this process known."""
        await self._writer.write(
            "register_worker", {"worker": self._worker_id, "name": name, "host": host, "version": version}
        )

    async def forget_worker(self) -> None:
        """Take this process off the list after an orderly end."""
        await self._writer.write("forget_worker", {"worker": self._worker_id})

    async def register_server(self, *, name: str, url: str, slots: int, loopback: bool, alive_s: float) -> int:
        """A server's number, by its fleet-wide name.

        Raises GenflowError `server_ambiguous` where a worker seen within `alive_s` seconds knows the name under
        another address, or (loopback addresses aside: each machine has its own) the address under another name.
        """
        server_id: int = (await self._writer.write("register_server", {"name": name, "slots": slots}))[0]["id"]
        other = await self._writer.write(
            "other_url",
            {
                "worker": self._worker_id,
                "server": server_id,
                "url": url,
                "absolute": not loopback,
                "alive_s": alive_s,
            },
        )
        if other:
            raise GenflowError(
                "server_ambiguous",
                f"server {name} at {url}: worker {other[0]['worker']} knows {other[0]['name']} at {other[0]['url']};"
                " one server has one name and one address",
                status=409,
            )
        return server_id

    async def probed(
        self,
        server_id: int,
        *,
        url: str,
        healthy: bool,
        boot: UUID | None = None,
        has_jobs_route: bool | None = None,
        capabilities_hash: bytes | None = None,
    ) -> Standing:
        """Record what a probe saw; the server's standing in the fleet."""
        rows = await self._writer.write(
            "probe_result",
            {
                "worker": self._worker_id,
                "server": server_id,
                "url": url,
                "healthy": healthy,
                "boot": boot,
                "has_jobs_route": has_jobs_route,
                "capabilities_hash": capabilities_hash,
            },
        )
        return Standing(ServerState(rows[0]["state"]), rows[0]["reason"])

    async def quarantine(self, server_id: int, reason: str, *, seconds: float) -> None:
        """Keep new work from a server until a new boot or for `seconds`."""
        await self._writer.write("quarantine", {"server": server_id, "reason": reason, "seconds": seconds})

    async def save_object_info(self, hash: bytes, body: str) -> None:
        """Keep a server's own description of its nodes."""
        await self._writer.write("save_object_info", {"hash": hash, "body": body})

    async def servers(self) -> list[Row]:
        """The fleet, by name."""
        return await self._writer.write("server_list", {})
