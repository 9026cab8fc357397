"""What a size of fleet came to, and what follows from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

RUN_S = 5.0
"""Seconds of a job."""
KNEE = 0.05
"""Idle share past which a fleet is more than a machine carries."""
BUSY = 0.9
"""Share of a core, or of all, from which on it is what holds the others up."""


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
