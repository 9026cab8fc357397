"""What a size of fleet came to, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RUN_S = 5.0
"""Seconds of a job."""
KNEE = 0.05
"""Idle share past which a fleet is more than a machine carries."""
BUSY = 0.9
"""Share of a core, or of all, from which on it is what holds the others up."""


Run = tuple[str, float, float]
"""Prompt, start and end of an execution in a server's log, in milliseconds."""


def span_ms(runs: Sequence[Run]) -> float:
    """From the first start to the last end. Pure."""
    return max(end for *_, end in runs) - min(start for _, start, _ in runs)


def idle_share(runs: Sequence[Run], servers: int = 1) -> float:
    """The share of that time in which the servers of these runs did nothing. Pure."""
    return 1.0 - sum(end - start for _, start, end in runs) / (servers * span_ms(runs))


@dataclass(frozen=True)
class Level:
    """What one size of fleet came to."""

    servers: int
    rate: float
    """Jobs/s from the first start to the last end."""
    idle: float
    postgres_s: float
    workers_s: float
    simulators_s: float
    """Processor seconds a job."""
    busiest_worker: float
    """Cores that the busiest worker process took."""
    machine: float
    """Share of all cores that was taken, by whomever."""

    @property
    def limit(self) -> str:
        """What was used up."""
        if self.busiest_worker >= BUSY:
            return "a worker process (one core)"
        return "this machine's cores" if self.machine >= BUSY else "nothing"


def knee(levels: list[Level]) -> Level:
    """The largest fleet whose GPUs did not idle, all smaller ones included; the smallest where none. Pure."""
    carried = levels[0]
    for level in levels:
        if level.idle > KNEE:
            break
        carried = level
    return carried


def carries(cpu_s: float) -> int:
    """GPUs with jobs of `RUN_S` that one core carries where each job takes `cpu_s` of it. Pure."""
    return int(RUN_S / cpu_s)
