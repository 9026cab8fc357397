"""The rules that figures rest on: one schedule for both sides, what a doubled run is, where the knee is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from bench.chaos_report import row
from bench.faults import BETWEEN_S, KINDS, PAIR, doubled, schedule
from bench.levels import Level, carries, knee


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 60) == schedule(7, 60)
    assert schedule(7, 60) != schedule(8, 60)
    assert schedule(7, 20) == schedule(7, 60)[:20]


def test_each_round_has_every_fault_in_its_share() -> None:
    faults = schedule(7, 60)
    rounds = [Counter(fault.kind for fault in faults[at : at + 20]) for at in (0, 20, 40)]
    assert rounds == [Counter(KINDS)] * 3
    assert {fault.target for fault in faults} == set(range(PAIR))
    gaps = [later.at_s - fault.at_s for fault, later in pairwise(faults)]
    assert BETWEEN_S[0] - 0.01 <= min(gaps) <= max(gaps) <= BETWEEN_S[1] + 0.01


def test_a_second_whole_run_is_doubled_wherever_it_ran() -> None:
    once, again = ("a", 0.0, 1000.0), ("a", 5000.0, 6000.0)
    assert doubled([[once], []], [[], []], 1.0) == 0
    assert doubled([[once, again], []], [[], []], 1.0) == 1
    assert doubled([[once], [again]], [[], []], 1.0) == 1
    assert doubled([[once, ("b", 1000.0, 2000.0)], []], [[], []], 1.0) == 0


def test_a_run_that_was_cut_off_or_answered_by_the_cache_is_no_whole_run() -> None:
    assert doubled([[("a", 0.0, 400.0), ("a", 500.0, 1500.0)]], [[]], 1.0) == 0
    assert doubled([[("a", 0.0, 1000.0), ("a", 1000.0, 1010.0)]], [[]], 1.0) == 0


def test_a_run_whose_server_lost_its_memory_right_after_it_counts_for_nobody() -> None:
    runs = [[("a", 0.0, 1000.0), ("a", 5000.0, 6000.0)], []]
    assert doubled(runs, [[1200.0], []], 1.0) == 0
    assert doubled(runs, [[4000.0], []], 1.0) == 1, "its result could have been fetched by then"
    assert doubled(runs, [[], [1200.0]], 1.0) == 1, "another server's memory is of no matter"


def level(servers: int, idle: float, *, busiest: float = 0.1, machine: float = 0.1) -> Level:
    return Level(servers, servers / 5, idle, 0.01, 0.02, 0.03, busiest, machine)


def test_the_knee_is_the_last_fleet_before_gpus_idle() -> None:
    levels = [level(1, 0.0), level(4, 0.01), level(16, 0.04), level(64, 0.2), level(128, 0.01)]
    assert knee(levels).servers == 16
    assert knee(levels[:2]).servers == 4
    assert knee([level(1, 0.5)]).servers == 1


def test_a_level_names_what_was_used_up() -> None:
    assert level(1, 0.0).limit == "nothing"
    assert level(1, 0.0, machine=0.95).limit == "this machine's cores"
    assert level(1, 0.0, busiest=0.95, machine=0.95).limit == "a worker process (one core)"


def test_what_a_core_carries_follows_from_a_jobs_share_of_it() -> None:
    assert carries(0.010) == 500
    assert carries(0.050) == 100


def test_the_chaos_report_is_counted_by_a_thousand_faults() -> None:
    report = {"seed": 7, "jobs": 1200, "faults": {"kill": 30, "freeze": 20}, "doubled": 1, "lost": 2}
    assert row(report, "1 May")[1:] == ["1,200", "50", "1", "2", "20", "40"]
    assert row(report | {"faults": {}}, "1 May")[-2:] == ["", ""]
