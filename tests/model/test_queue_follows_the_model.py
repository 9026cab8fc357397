"""The real queue on a real Postgres does, transaction by transaction, what the model's row does.

hypothesis drives both through any mixture of clients, two workers (each with stale holds of its own past), sweeps and
leaps of the database's clock. After each step the rows are compared, and each write's outcome: done, lease lost,
canceled, slot taken, start-by passed.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from genflow.queue import writer
from genflow.queue.statements import statement

from .queue_and_model import QueueAndModel, driven

STEPS = 50
WALKS = 80
SETTINGS = settings(max_examples=50, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(600)
def test_the_queue_follows_the_model(database: str) -> None:
    with driven(database) as machine:
        run_state_machine_as_test(machine, settings=SETTINGS)


@pytest.mark.timeout(600)
def test_the_queue_follows_the_model_far(database: str) -> None:
    with driven(database) as machine:
        walks(machine)


WRONG = {
    "a receipt without the token": ("receipt", "and j.token = asked.token", ""),
    "a checkpoint without the token": ("run_ended", "and j.token = asked.token", ""),
    "a finish that ignores the cancel": ("finish", "case when complete.cancel_at is null then 10 else 12 end", "10"),
    "a retry that ignores the cancel": ("end_attempt", "when held.cancel_at is not null then 12", "when false then 12"),
    "an intent after a cancel": ("intent", "and j.cancel_at is null", ""),
    "a rescue that keeps the token": ("rescue", "token = j.token + 1", "token = j.token"),
    "a rescue of valid leases": ("rescue", "j.lease_until < genflow.clock()", "true"),
    "a cancel that leaves the token": ("cancel", "case when target.open then 0 else 1 end", "0"),
    "a release that forgets what is open": ("release", "when held.open or held.step = 3", "when false"),
    "a claim past the free slots": ("claim_unbound", "- count(*)", ""),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_statement_is_seen(wrong: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, right, put = WRONG[wrong]
    text = statement(name)
    assert right in text
    texts = {name: text.replace(right, put)}
    monkeypatch.setattr(writer, "statement", lambda asked: texts.get(asked) or statement(asked))
    with driven(database) as machine, pytest.raises(AssertionError):
        walks(machine)


def walks(machine: type[RuleBasedStateMachine]) -> None:
    """Walks without hypothesis, which shrink nothing but go far: it repeats itself a lot to stay simple."""
    for seed in range(WALKS):
        both = machine()
        assert isinstance(both, QueueAndModel)
        choose = random.Random(seed).choice
        try:
            both.two_servers()
            for _ in range(STEPS):
                both.happen(choose)
                both.the_rows_agree()
        finally:
            both.teardown()
