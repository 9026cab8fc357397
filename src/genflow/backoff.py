"""How long a job waits before its next attempt. Pure."""

from __future__ import annotations

import random


def retry_delay(
    attempt: int, *, base_s: float, cap_s: float, jitter: bool = True, rng: random.Random | None = None
) -> float:
    """Seconds to wait after attempt number `attempt` (1 = the first) failed.

    Full jitter: uniform between 0 and min(cap, base · 2^(attempt−1)); without jitter that bound itself.
    """
    bound = min(cap_s, base_s * 2.0 ** min(attempt - 1, 60))
    if not jitter:
        return bound
    return (rng or random).uniform(0.0, bound)


def doubling(tries: int, *, base_s: float, cap_s: float) -> float:
    """Seconds until the next try of something that costs no run: `base_s`, doubled by each failure, at most `cap_s`."""
    return min(cap_s, base_s * 2.0 ** min(tries, 60))
