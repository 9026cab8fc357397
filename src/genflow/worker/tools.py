"""What every attempt of a worker works with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from genflow.fleet import Fleet
from genflow.protocol import Timing
from genflow.queue import Ledger
from genflow.sealing import Sealer
from genflow.storage.store import Store
from genflow.worker.live import LiveProgress
from genflow.worker.telling import Teller, silent


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts of a worker that its attempts share, and the times they keep (seconds)."""

    ledger: Ledger
    fleet: Fleet
    store: Store
    store_marker: str
    live: LiveProgress
    timing: Timing
    poll_s: float
    stop_grace_s: float
    collect_window_s: float
    sealer: Sealer = field(default_factory=lambda: Sealer([]))
    """Opens what clients gave their jobs for the worker alone."""
    previews: bool = False
    """Whether temporary files are results."""
    cancel_unreachable_s: float = 60.0
    stuck_s: float = 900.0
    tell: Teller = silent
    will_run: Callable[[int, Mapping[str, Any]], Collection[str]] = lambda server_id, graph: graph
    """Which nodes of a workflow a server will run: those that its output nodes need."""
    can: Callable[[int, int], bool] = lambda server_id, class_id: True
    """Whether a server can run jobs of a class."""
