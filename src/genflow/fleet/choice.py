"""Which server a new prompt goes to, and how that is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from genflow.fleet.server import FleetServer


class Room(Enum):
    """Whether there is any server for a new prompt, apart from slots that are in use."""

    SOME = "some"
    NO_SERVER = "no_server"
    """None answers its probes."""
    ALL_FULL = "all_full"
    """Those that would take work are filled by others."""


def is_full(server: FleetServer, max_queue: int | None) -> bool:
    """Whether others have filled its queue to the bound."""
    return max_queue is not None and server.strangers >= max_queue


def choices(servers: Iterable[FleetServer], *, max_queue: int | None) -> list[FleetServer]:
    """The servers that take a new prompt now, best first: fewest prompts ahead, then the order given."""
    able = [s for s in servers if s.takes_new and s.free_slots > 0 and not is_full(s, max_queue)]
    return sorted(able, key=lambda server: (server.ahead, server.order))


def room(servers: Sequence[FleetServer], *, max_queue: int | None) -> Room:
    """What stands in the way of new work everywhere."""
    if not any(server.healthy for server in servers):
        return Room.NO_SERVER
    willing = [server for server in servers if server.takes_new]
    return Room.ALL_FULL if willing and all(is_full(server, max_queue) for server in willing) else Room.SOME


Lengths = tuple[tuple[str, int], ...]
"""Each server's name, as given, and the prompts that stand there."""


def lengths(servers: Iterable[FleetServer]) -> Lengths:
    """The queue lengths, as far as known, of the servers that answer."""
    return tuple((server.given, server.ahead) for server in servers if server.healthy)


def choice_line(chosen: str, seen: Lengths) -> str:
    """A decision in one line."""
    return f"scheduler: {chosen} chosen, queue lengths {', '.join(f'{name} {length}' for name, length in seen)}"
