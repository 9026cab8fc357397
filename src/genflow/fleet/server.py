"""One server as a worker sees it: its address, its health, and how much stands before a new prompt there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import UUID

from genflow.comfy import ComfyServer, Device
from genflow.fleet.breaker import Breaker, Position
from genflow.queue.registry import ServerState, Standing


@dataclass(slots=True, eq=False)
class FleetServer:
    """A server with its fleet-wide number. `given` is its name in the settings, `order` the place in which it stood."""

    id: int
    name: str
    given: str
    comfy: ComfyServer
    slots: int
    order: int
    breaker: Breaker
    healthy: bool = False
    """Whether the last probe was answered, and no call since then found it away."""
    why: str = "not probed yet"
    """Why it is not healthy, as last seen."""
    boot: UUID | None = None
    guard: bool = False
    """Whether genflow's guard stood there at the last probe."""
    standing: Standing = field(default_factory=lambda: Standing(ServerState.READY, None))
    ours: set[UUID] = field(default_factory=set)
    """Jobs of this worker that take a slot here."""
    idle_since: float | None = None
    """Since when nothing that waits could be claimed for it while it had nothing to do (boottime seconds)."""
    others: int = 0
    """Prompts there that are not this worker's, at the last probe."""
    strangers: int = 0
    """Those of them that are not the fleet's: what `max_queue` is about."""
    device: Device | None = None
    vram: int | None = None
    """Bytes of memory of its GPU, as given or else as the server says."""
    capabilities: bytes | None = None
    """The hash of what it can run."""

    @property
    def takes_new(self) -> bool:
        """Whether a new submit may go here now, as far as the server itself is concerned."""
        ready = self.standing.state is ServerState.READY
        return self.healthy and ready and self.breaker.position is not Position.OPEN

    @property
    def free_slots(self) -> int:
        """Slots that this worker does not use yet; the claim counts those of other workers."""
        slots = 1 if self.breaker.position is Position.HALF_OPEN else self.slots
        return max(0, slots - len(self.ours))

    @property
    def ahead(self) -> int:
        """Prompts that a new one would wait behind, as far as known."""
        return self.others + len(self.ours)


def is_loopback(url: str) -> bool:
    """Whether only the machine itself reaches this address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def fleet_name(name: str, url: str, instance: str) -> str:
    """The name by which the whole fleet knows a server: one on a loopback address belongs to its own machine."""
    return f"{instance}/{name}" if is_loopback(url) else name
