"""Which workers and servers there are, as all of them know it through Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from genflow.errors import GenflowError
from genflow.queue.writer import Writer


class ServerState(IntEnum):
    """What the fleet thinks of a server; follow-ups of open submits are never kept out."""

    READY = 1
    QUARANTINED = 2
    DRAINING = 3
    FORGOTTEN = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """A server's state and its reason."""

    state: ServerState
    reason: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """A registered server: its number, and the last boot that anybody saw."""

    id: int
    boot: UUID | None


@dataclass(frozen=True, slots=True)
class Probed:
    """What the fleet knows of a server that was just probed.

    `accepted` is how many prompts of the fleet it holds, `capabilities` the hash of what it can run.
    """

    standing: Standing
    accepted: int
    capabilities: bytes | None
    trial: bool
    """Whether this worker is to have it run a trial now."""


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

    async def register_server(
        self,
        *,
        name: str,
        url: str,
        slots: int,
        loopback: bool,
        alive_s: float,
        tags: Sequence[str] = (),
        vram: int | None = None,
    ) -> Known:
        """Make a server known by its fleet-wide name; `vram` in bytes, None keeps what was known.

        Raises GenflowError `server_ambiguous` where a worker seen within `alive_s` seconds knows the name under
        another address, or (loopback addresses aside: each machine has its own) the address under another name.
        """
        params = {"name": name, "slots": slots, "tags": list(tags), "vram": vram}
        row = (await self._writer.write("register_server", params))[0]
        known = Known(row["id"], row["boot"])
        other = await self._writer.write(
            "other_url",
            {
                "worker": self._worker_id,
                "server": known.id,
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
        return known

    async def probed(
        self,
        server_id: int,
        *,
        url: str,
        healthy: bool,
        boot: UUID | None = None,
        has_jobs_route: bool | None = None,
        guard: bool | None = None,
        vram: int | None = None,
        capabilities_hash: bytes | None = None,
        trial_s: float = 60.0,
    ) -> Probed:
        """Record what a probe saw (None: not seen this time); what the fleet knows of the server.

        Where it is told to have the server run a trial, no other worker is for `trial_s` seconds.
        """
        rows = await self._writer.write(
            "probe_result",
            {
                "worker": self._worker_id,
                "server": server_id,
                "url": url,
                "healthy": healthy,
                "boot": boot,
                "has_jobs_route": has_jobs_route,
                "guard": guard,
                "vram": vram,
                "capabilities_hash": capabilities_hash,
                "trial_s": trial_s,
            },
        )
        row = rows[0]
        found = row["capabilities_hash"]
        return Probed(
            Standing(ServerState(row["state"]), row["reason"]),
            row["accepted"],
            None if found is None else bytes(found),
            row["trial"],
        )

    async def quarantine(self, server_id: int, reason: str, *, seconds: float, needs_run: bool) -> None:
        """Keep new work from a server until a new boot or for `seconds`, with `needs_run` until a trial ran then."""
        await self._writer.write(
            "quarantine", {"server": server_id, "reason": reason, "seconds": seconds, "needs_run": needs_run}
        )

    async def trial_passed(self, server_id: int) -> bool:
        """A distrusted server ran its trial; whether that set it free (a person may have been faster)."""
        return bool(await self._writer.write("trial_passed", {"server": server_id}))

    async def save_object_info(self, hash: bytes, body: str) -> None:
        """Keep a server's own description of its nodes."""
        await self._writer.write("save_object_info", {"hash": hash, "body": body})
