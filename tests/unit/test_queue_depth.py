"""A process counts the queue only near its limit, and a place only where the queue may be short."""

from __future__ import annotations

import pytest

from genflow.queue import queue
from genflow.queue.queue import COUNT_AGAIN_S, PLACES_TOLD, Depth

LIMIT = 10_000


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(queue, "boottime", clock)
    return clock


def test_nothing_is_taken_for_known_before_a_count(clock: Clock) -> None:
    depth = Depth(LIMIT)
    assert depth.unsure()
    assert not depth.long()


def test_a_queue_is_long_past_the_places_told(clock: Clock) -> None:
    depth = Depth(LIMIT)
    depth.learned(PLACES_TOLD - 1, accepted=True)
    assert not depth.long()
    depth.learned(None, accepted=True)
    assert depth.long()


def test_a_refused_submit_makes_it_no_longer(clock: Clock) -> None:
    depth = Depth(LIMIT)
    depth.learned(PLACES_TOLD, accepted=False)
    assert not depth.long()


def test_an_old_count_tells_nothing(clock: Clock) -> None:
    depth = Depth(LIMIT)
    depth.learned(PLACES_TOLD + 1, accepted=True)
    assert (depth.unsure(), depth.long()) == (False, True)
    clock.now += COUNT_AGAIN_S + 0.1
    assert (depth.unsure(), depth.long()) == (True, False)


def test_each_job_is_counted_in_from_half_of_the_limit(clock: Clock) -> None:
    depth = Depth(LIMIT)
    depth.learned(LIMIT // 2 - 1, accepted=False)
    assert not depth.unsure()
    depth.learned(None, accepted=True)
    assert depth.unsure()
