"""Waits between attempts: the defaults without jitter, their mean with it, and where the cap begins to count."""

from __future__ import annotations

import random

import pytest

from genflow.backoff import doubling, retry_delay
from genflow.failures import Policy

DEFAULTS = Policy()


def delay(attempt: int, *, jitter: bool = False, rng: random.Random | None = None) -> float:
    return retry_delay(attempt, base_s=DEFAULTS.base_s, cap_s=DEFAULTS.cap_s, jitter=jitter, rng=rng)


def test_the_defaults_wait_two_four_and_eight_seconds() -> None:
    waits = [delay(attempt) for attempt in range(1, DEFAULTS.max_attempts)]
    assert (waits, sum(waits)) == ([2.0, 4.0, 8.0], 14.0)


def test_with_jitter_a_job_that_always_fails_waits_seven_seconds_in_the_mean() -> None:
    rng = random.Random(7)
    totals = [sum(delay(attempt, jitter=True, rng=rng) for attempt in (1, 2, 3)) for _ in range(20_000)]
    assert sum(totals) / len(totals) == pytest.approx(7.0, abs=0.1)
    assert min(totals) >= 0
    assert max(totals) <= 14


def test_the_cap_counts_from_the_sixth_attempt_on() -> None:
    assert [delay(attempt) for attempt in (5, 6, 7, 1_000)] == [32.0, 60.0, 60.0, 60.0]


def test_no_delay_is_no_delay() -> None:
    assert retry_delay(3, base_s=0.0, cap_s=60.0) == 0.0


def test_what_costs_no_run_doubles_up_to_its_cap() -> None:
    assert [doubling(tries, base_s=0.5, cap_s=60.0) for tries in (0, 1, 6, 7, 10_000)] == [0.5, 1.0, 32.0, 60.0, 60.0]
