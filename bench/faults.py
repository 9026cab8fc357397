"""The faults of bench/crashes.py, drawn from a seed, and what counts as a doubled run. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.levels import Run
from chaos.plan import rounds

KINDS: Mapping[str, int] = {"kill": 10, "freeze": 5, "restart": 4, "broker": 1}
"""How many of each in a round of twenty."""
BETWEEN_S = (0.4, 1.4)
LEASE_S = 3.0
PAIR = 2
"""Workers, and servers, of each side."""
AT_ITS_END_S = 1.5
"""A server that restarts this soon after a run has taken its result with it."""


@dataclass(frozen=True)
class Fault:
    """One fault: when, what, which worker or server, and for how long."""

    at_s: float
    kind: str
    target: int
    seconds: float


def schedule(seed: int, count: int) -> list[Fault]:
    """The faults of a seed, in order. The same seed is the same schedule. Pure."""
    rng = random.Random(seed)
    kinds = rounds(rng, KINDS)
    faults, at_s = [], 2.0
    for _ in range(count):
        kind = next(kinds)
        seconds = LEASE_S * rng.uniform(0.3, 1.7) if kind == "freeze" else rng.uniform(0.1, 1.0)
        faults.append(Fault(round(at_s, 3), kind, rng.randrange(PAIR), round(seconds, 3)))
        at_s += rng.uniform(*BETWEEN_S)
    return faults


def doubled(
    runs_by_server: Sequence[Sequence[Run]], restarts_by_server: Sequence[Sequence[float]], run_s: float
) -> int:
    """Whole runs beyond the first of each job. Pure.

    Left out are runs that were cut off, or answered from the server's cache, and those whose server lost its memory
    (`restarts_by_server`, milliseconds) within a moment after their end.
    """
    whole: Counter[str] = Counter()
    for runs, restarts in zip(runs_by_server, restarts_by_server, strict=True):
        for job, start, end in runs:
            wiped = any(end <= at <= end + AT_ITS_END_S * 1000 for at in restarts)
            if end - start >= 0.9 * run_s * 1000 and not wiped:
                whole[job] += 1
    return sum(count - 1 for count in whole.values())
