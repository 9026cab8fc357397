"""The breaker: when a server that was in trouble gets new work again."""

from __future__ import annotations

import random

from genflow.fleet.breaker import CAP_S, Breaker, Position


class Highest(random.Random):
    """Chance that always draws the longest back-off."""

    def uniform(self, a: float, b: float) -> float:
        return b


def breaker() -> Breaker:
    return Breaker(base_s=2.0, rng=Highest())


def back(made: Breaker, now: float) -> float:
    """Probes are answered, a second apart, until the breaker is closed; the time then."""
    while made.position is not Position.CLOSED:
        made.answered(now)
        now += 1.0
    return now


def test_trouble_opens_it_and_no_answer_matters_before_the_back_off_is_over() -> None:
    made = breaker()
    made.trouble(100.0)
    for now in (100.1, 101.0, 101.9):
        made.answered(now)
        assert made.position is Position.OPEN
    made.answered(102.0)
    assert made.position is Position.HALF_OPEN


def test_half_open_needs_more_than_one_answer() -> None:
    made = breaker()
    made.trouble(0.0)
    made.answered(2.0)
    seen = []
    for _ in range(2):
        seen.append(made.position)
        made.answered(3.0)
    assert [*seen, made.position] == [Position.HALF_OPEN, Position.HALF_OPEN, Position.CLOSED]


def test_an_outage_is_one_trouble_however_often_it_is_noticed() -> None:
    made = breaker()
    for now in range(50):
        made.trouble(float(now))
    made.answered(50.0)
    assert made.position is Position.HALF_OPEN, "back with the first answer after a long outage"


def test_a_server_that_comes_and_goes_is_left_alone_for_longer_and_longer_up_to_the_cap() -> None:
    made, now, waits = breaker(), 0.0, []
    for _ in range(7):
        made.trouble(now)
        wait = 0.0
        while made.position is Position.OPEN:
            wait += 1.0
            made.answered(now + wait)
        waits.append(wait)
        now += wait
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, CAP_S, CAP_S]


def test_closed_for_a_while_is_forgiven_and_closed_for_a_moment_is_not() -> None:
    made = breaker()
    for _ in range(3):
        made.trouble(0.0)
        made.answered(1_000.0)
    closed = back(made, 1_000.0)
    made.trouble(closed + 1.0)
    assert not _tried(made, closed + 1.0 + 4.0)
    closed = back(made, 2_000.0)
    made.trouble(closed + CAP_S)
    assert _tried(made, closed + CAP_S + 2.0)


def test_the_back_off_is_spread_at_random() -> None:
    firsts = set()
    for seed in range(20):
        made = Breaker(base_s=2.0, rng=random.Random(seed))
        made.trouble(0.0)
        firsts.add(next(tenth for tenth in range(21) if _tried(made, tenth / 10)))
    assert len(firsts) > 5
    assert max(firsts) <= 20


def _tried(made: Breaker, now: float) -> bool:
    made.answered(now)
    return made.position is not Position.OPEN
