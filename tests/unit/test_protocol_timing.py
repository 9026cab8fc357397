"""The times of a lease: docs/design/protocol.md, section 4."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genflow.protocol import Timing, boottime


def test_the_defaults_follow_the_lease() -> None:
    assert Timing.from_lease(30) == Timing(lease_s=30, heartbeat_s=10, margin_s=5, post_timeout_s=10, settle_s=30)
    assert Timing.from_lease(3) == Timing(lease_s=3, heartbeat_s=1, margin_s=0.5, post_timeout_s=1, settle_s=3)


@given(st.floats(min_value=0.01, max_value=1e6))
def test_any_lease_alone_makes_a_set_that_fits(lease: float) -> None:
    timing = Timing.from_lease(lease)
    assert timing.settle_s >= timing.post_timeout_s
    assert timing.post_timeout_s + timing.margin_s <= timing.lease_s - timing.heartbeat_s


def test_given_times_are_kept() -> None:
    timing = Timing.from_lease(30, heartbeat_s=5, margin_s=2, post_timeout_s=20, settle_s=40)
    assert (timing.heartbeat_s, timing.margin_s, timing.post_timeout_s, timing.settle_s) == (5, 2, 20, 40)


def test_a_post_that_outlives_the_lease_is_refused_naming_the_numbers() -> None:
    with pytest.raises(
        ValueError, match=r"POST timeout 18 s \+ margin 5 s must be at most lease 30 s - heartbeat 10 s"
    ):
        Timing.from_lease(30, post_timeout_s=18)


def test_the_rule_holds_to_the_brim() -> None:
    assert Timing.from_lease(30, post_timeout_s=15).post_timeout_s == 15


def test_a_settle_shorter_than_the_post_is_refused_naming_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"settle 9 s must be at least the POST timeout 10 s"):
        Timing.from_lease(30, settle_s=9)


@pytest.mark.parametrize("name", ["lease_s", "heartbeat_s", "margin_s", "post_timeout_s", "settle_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_no_time_is_zero_negative_or_endless(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name.removesuffix('_s')} must be a positive number of seconds"):
        Timing.from_lease(**{"lease_s": 30.0, name: value})


def test_boottime_is_the_clock_that_runs_on_in_sleep() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = boottime()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
