"""The same seed is the same attack: a red run can be looked at again."""

from __future__ import annotations

from collections import Counter

from chaos.plan import FAULTS, LEASE_S, MESSAGES, WISHES, plan

SEEDS = range(40)


def test_the_same_seed_is_the_same_plan_and_another_is_another() -> None:
    plans = [plan(seed, 3.0) for seed in SEEDS]
    assert plans == [plan(seed, 3.0) for seed in SEEDS]
    assert len({each.faults for each in plans}) == len({each.wishes for each in plans}) == len(SEEDS)


def test_three_minutes_hold_every_kind_of_fault_and_of_job() -> None:
    for seed in SEEDS:
        drawn = plan(seed, 3.0)
        assert {fault.kind for fault in drawn.faults} == set(FAULTS)
        assert {wish.kind for wish in drawn.wishes} == set(WISHES)
        lengths = [fault.seconds for fault in drawn.faults if fault.kind == "freeze"]
        assert min(lengths) < LEASE_S < max(lengths)


def test_every_fault_is_bounded_and_begins_before_the_end() -> None:
    for seed in SEEDS:
        drawn = plan(seed, 2.0)
        assert all(0 <= fault.seconds <= 4 * LEASE_S for fault in drawn.faults)
        begins = [fault.at_s for fault in drawn.faults] + [wish.at_s for wish in drawn.wishes]
        assert 0 < min(begins) <= max(begins) < drawn.active_s


def test_each_job_that_brings_its_id_brings_one_of_its_own() -> None:
    ids = Counter(job for seed in SEEDS for wish in plan(seed, 2.0).wishes for job in wish.ids)
    assert ids
    assert set(ids.values()) == {1}


def test_without_a_broker_nothing_is_asked_of_it() -> None:
    drawn = plan(1, 3.0, broker=False)
    assert not {wish.kind for wish in drawn.wishes} & set(MESSAGES)
    assert not [fault for fault in drawn.faults if "broker" in (fault.kind, fault.target) or "intake" in fault.target]
