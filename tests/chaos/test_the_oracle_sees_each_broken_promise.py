"""Each rule of the oracle finds a run that breaks its promise, and none finds anything in a run that keeps them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.oracle import RULES, judge
from chaos.snapshot import Event, JobRow, Line, OutputRow, Snapshot, SubmitRow, Told
from genflow.jobs import State, SubmitState
from tests.chaos.snapshots import BAD, CANCELED, FAILED, GOOD, MESSAGE, execution, ran, whole

Change = Callable[[Snapshot], Snapshot]


def job(id: str, **fields: Any) -> Change:
    """The run in which a job's row says something else."""
    return lambda run: replace(run, jobs=tuple(replace(row, **fields) if row.id == id else row for row in run.jobs))


def submit(uuid: str, **fields: Any) -> Change:
    """The run in which a submit's row says something else."""
    return lambda run: replace(
        run, submits=tuple(replace(row, **fields) if row.uuid == uuid else row for row in run.submits)
    )


def output(id: str, **fields: Any) -> Change:
    """The run in which an output's row says something else."""
    return lambda run: replace(
        run, outputs=tuple(replace(row, **fields) if row.id == id else row for row in run.outputs)
    )


def told(what: str, id: str, **detail: Any) -> Change:
    """The run in which a client was told something else."""
    return lambda run: replace(
        run,
        told=tuple(
            replace(each, detail={**each.detail, **detail}) if (each.what, each.job) == (what, id) else each
            for each in run.told
        ),
    )


def also(**more: Any) -> Change:
    """The run with more in it."""

    def changed(run: Snapshot) -> Snapshot:
        added: dict[str, Any] = {name: (*getattr(run, name), *values) for name, values in more.items()}
        return replace(run, **added)

    return changed


def but(**fields: Any) -> Change:
    """The run with something else in it."""
    return lambda run: replace(run, **fields)


def without(name: str, gone: Callable[[Any], bool]) -> Change:
    """The run without some of its rows."""

    def changed(run: Snapshot) -> Snapshot:
        left: dict[str, Any] = {name: tuple(each for each in getattr(run, name) if not gone(each))}
        return replace(run, **left)

    return changed


def both(*changes: Change) -> Change:
    """Several changes."""

    def changed(run: Snapshot) -> Snapshot:
        for change in changes:
            run = change(run)
        return run

    return changed


AGAIN = execution(GOOD, "u9", 4.5, 5.5, "success", a="a2", b="b2")
SECOND_SUBMIT = ran(GOOD, "u9", 3.6, 5.6, no=2)
STALE = SubmitRow(GOOD, 1, "u0", "gpu0", 1, SubmitState.REFUSED, created_at=0.5, ended_at=0.9)
THIRD = tuple(Line(1.35, "gpu0", "posted", GOOD, uuid, {"token": 1}) for uuid in ("x1", "x2"))
THIRD_ROWS = tuple(
    SubmitRow(GOOD, 5 + number, f"x{number}", "gpu0", 1, SubmitState.ENDED, created_at=1.0) for number in (1, 2)
)

BREAKS: list[tuple[str, str, Change]] = [
    ("what_was_accepted_is_not_lost", "no row", without("jobs", lambda row: row.id == GOOD)),
    ("what_was_accepted_is_not_lost", "never ends", job(MESSAGE, state=State.QUEUED)),
    ("what_was_accepted_is_not_lost", "another tenant's", job(GOOD, tenant="two")),
    ("what_was_accepted_is_not_lost", "404 to its own client", also(told=[Told(2.0, 1, "unknown", GOOD)])),
    ("what_was_accepted_is_not_lost", "never told", also(told=[Told(9.0, 1, "left", GOOD)])),
    ("each_wish_is_one_job", "two of one key", also(jobs=[JobRow("twin", "one", 1, State.CANCELED)])),
    ("each_wish_is_one_job", "half an upload", also(jobs=[JobRow("half", "two", 6, State.CANCELED)])),
    ("each_wish_is_one_job", "another's id", also(told=[Told(1.0, 2, "accepted", GOOD)])),
    ("every_run_is_a_submit", "unknown submit", also(lines=AGAIN)),
    ("every_run_is_a_submit", "another job's", also(lines=execution(GOOD, "u2", 7.0, 8.0, "success"))),
    ("every_run_is_a_submit", "one submit twice", also(lines=execution(GOOD, "u1", 3.5, 3.6, "success"))),
    ("every_run_is_a_submit", "elsewhere", submit("u1", server="gpu1")),
    ("every_prompt_shows_its_token", "another token", submit("u1", token=2)),
    ("every_run_is_counted", "nobody counted it", also(lines=AGAIN, submits=[SECOND_SUBMIT])),
    (
        "every_run_is_counted",
        "a refused submit ran",
        both(also(lines=execution(GOOD, "u0", 1.0, 1.2, "success"), submits=[STALE]), job(GOOD, attempt=2)),
    ),
    (
        "every_run_is_counted",
        "a lost one, and no resubmit",
        both(also(lines=execution(GOOD, "u0", 1.0, 1.2, "success"), submits=[replace(STALE, state=SubmitState.LOST)]),
             job(GOOD, attempt=2)),
    ),
    (
        "no_server_hears_a_stale_submit",
        "after the next",
        also(lines=execution(GOOD, "u0", 2.5, 2.6, "success"), submits=[replace(STALE, no=0)]),
    ),
    ("no_server_hears_a_stale_submit", "after the end", also(lines=execution(GOOD, "u1", 6.0, 7.0, "success"))),
    ("nothing_begins_after_the_end", "of a canceled one", also(lines=execution(CANCELED, "u3", 4.0, 5.0, "success"))),
    ("a_recorded_success_is_not_repeated", "again", also(submits=[SECOND_SUBMIT])),
    ("a_good_run_is_not_lost", "its server knew it", both(
        submit("u1", state=SubmitState.LOST), job(GOOD, resubmits=1))),
    ("nothing_is_taken_away_before_the_end", "its entry", also(lines=[Line(3.6, "gpu0", "deleted", GOOD)])),
    ("nothing_is_taken_away_before_the_end", "its picture", also(
        lines=[Line(3.6, "gpu0", "emptied", "", "", {"kind": "output", "name": f"genflow/{GOOD}/1/a.png"})])),
    ("a_guarded_fleet_doubles_nothing", "doubled", both(job(GOOD, doubled=1), but(guarded=True))),
    ("a_success_is_what_its_run_made", "other bytes", output("o1", hash="zz", stored="zz")),
    ("a_success_is_what_its_run_made", "the store lost it", output("o1", stored=None)),
    ("a_success_is_what_its_run_made", "the store changed it", output("o1", stored="zz")),
    ("a_success_is_what_its_run_made", "one is missing", without("outputs", lambda row: row.id == "o2")),
    ("a_success_is_what_its_run_made", "of no run at all", without("lines", lambda line: line.submit == "u1")),
    ("a_success_is_what_its_run_made", "it can't succeed", job(FAILED, state=State.SUCCEEDED)),
    (
        "a_success_is_what_its_run_made",
        "a canceled one has files",
        also(outputs=[OutputRow("o4", CANCELED, 1, "d.png", "dd", "dd")]),
    ),
    ("what_was_downloaded_is_what_was_made", "other bytes", told("downloaded", GOOD, hash="zz")),
    ("what_was_downloaded_is_what_was_made", "another's", told("downloaded", GOOD, output="o3")),
    ("a_failure_has_a_cause", "it ran well", job(GOOD, state=State.FAILED, error="lost_too_often")),
    ("a_job_that_ends_otherwise_was_canceled", "nobody asked", job(MESSAGE, state=State.CANCELED)),
    ("a_job_that_ends_otherwise_was_canceled", "expired", job(CANCELED, state=State.EXPIRED)),
    ("cancel_means_canceled", "and it succeeded", job(CANCELED, state=State.SUCCEEDED)),
    ("cancel_means_canceled", "submitted after it", submit("u3", created_at=3.1)),
    ("cancel_means_canceled", "ran after it", both(
        told("canceled", CANCELED, status="canceled"),
        also(lines=execution(CANCELED, "u3", 3.3, 3.35, "interrupted")))),
    ("cancel_means_canceled", "said to be over", told("canceled", CANCELED, status="succeeded")),
    ("an_end_stays", "another end", told("ended", GOOD, status="failed")),
    ("an_end_stays", "fewer outputs", told("ended", GOOD, outputs=1)),
    ("no_neighbour_is_harmed", "stopped for nothing", submit("u3", stop_reason="")),
    ("nobody_sees_anothers", "seen", told("trespassed", GOOD, status=200)),
    ("nobody_sees_anothers", "known to exist", told("trespassed", GOOD, status=403)),
    ("one_dead_letter_a_failed_job", "none", but(dead_letters=(BAD,))),
    ("one_dead_letter_a_failed_job", "of a success", also(dead_letters=[GOOD])),
    ("one_dead_letter_a_failed_job", "not told to RabbitMQ", but(dead_messages=())),
    ("one_dead_letter_a_failed_job", "told twice", but(dead_messages=(BAD, BAD))),
    ("one_dead_letter_a_failed_job", "a success told as failed", also(dead_messages=[MESSAGE])),
    ("every_message_is_done_with", "one is left", but(messages_left=1)),
    ("a_server_holds_no_more_than_its_slots", "three", lambda run: replace(
        run,
        lines=tuple(sorted((*run.lines, *THIRD), key=lambda line: line.at)),
        submits=(*run.submits, *THIRD_ROWS),
    )),
    ("the_queue_is_bounded", "too many", also(live=[(2.0, 101)])),
    ("memory_is_bounded", "too much", but(memory={"worker0": 500 * 2**20})),
    ("nothing_dies_by_itself", "died", also(events=[Event(1.0, "died", "worker0", detail="exit 1")])),
    ("the_api_has_an_answer", "500", also(told=[Told(1.0, 1, "odd", GOOD, {"path": "/", "status": 500, "body": ""})])),
    ("the_api_has_an_answer", "400", also(told=[Told(1.0, 1, "refused", "", {"status": 400, "answer": {}})])),
    ("nothing_is_left_to_do", "a submit", submit("u4", state=SubmitState.ACCEPTED)),
    ("nothing_is_left_to_do", "a chore", but(chores_left=(f"scrub {GOOD}",))),
    ("nothing_is_left_to_do", "a prompt", but(queued_left={"gpu0": (GOOD,)})),
    ("an_ended_job_leaves_no_file", "an output", but(files={"gpu0": {"output/a.png": 9}})),
    ("an_ended_job_leaves_no_file", "a photo", but(files={"gpu0": {f"input/genflow/{GOOD}/photo.jpg": 9}})),
]  # fmt: skip


def test_a_run_that_keeps_every_promise_is_green() -> None:
    assert judge(whole()) == []


@pytest.mark.parametrize(("rule", "how", "change"), BREAKS, ids=[f"{rule}: {how}" for rule, how, _ in BREAKS])
def test_a_broken_promise_is_seen(rule: str, how: str, change: Change) -> None:
    assert rule in {verdict.rule for verdict in judge(change(whole()))}


def test_every_rule_has_a_run_that_breaks_it() -> None:
    assert {rule.__name__ for rule in RULES} == {rule for rule, _, _ in BREAKS}


ALLOWED: list[tuple[str, Change]] = [
    ("a retry", both(also(lines=execution(FAILED, "u9", 2.6, 2.8, "IndexError", server="gpu1"),
                          submits=[ran(FAILED, "u9", 2.5, 2.9, no=2)]), job(FAILED, attempt=2))),
    ("a prompt that its server forgot", both(
        lambda run: replace(run, lines=(
            *execution(GOOD, "u0", 1.05, 1.1, "success")[:2], Line(1.15, "gpu0", "booted"), *run.lines[1:])),
        also(submits=[replace(STALE, no=0, state=SubmitState.LOST, executed=True)]), job(GOOD, resubmits=1))),
    ("a doubled run that is counted", both(
        also(lines=execution(GOOD, "u0", 6.5, 6.9, "success"), submits=[replace(STALE, no=0)]), job(GOOD, doubled=1))),
    ("a run that was given up", both(
        also(lines=execution(GOOD, "u0", 0.7, 1.2, "success"),
             submits=[replace(STALE, no=0, state=SubmitState.ABANDONED)]))),
    ("a stale prompt that was taken back", also(
        lines=[Line(2.5, "gpu0", "posted", GOOD, "u0", {"token": 1}), Line(2.6, "gpu0", "removed", GOOD, "u0")],
        submits=[replace(STALE, no=0)])),
    ("what is taken away after the end", also(lines=[
        Line(4.0, "gpu0", "deleted", GOOD),
        Line(4.0, "gpu0", "emptied", GOOD, "", {"kind": "output", "name": f"genflow/{GOOD}/1/a.png"})])),
    ("an entry of a failed run that makes room for the next", also(lines=[Line(2.5, "gpu1", "deleted", FAILED)])),
    ("out of memory twice", both(
        lambda run: replace(run, lines=tuple(line for line in run.lines if line.submit != "u4")),
        also(lines=[*execution(MESSAGE, "u4", 3.8, 4.0, "torch.OutOfMemoryError"),
                    *execution(MESSAGE, "u9", 4.3, 4.5, "torch.OutOfMemoryError")],
             submits=[ran(MESSAGE, "u9", 4.2, 4.6, no=2)], dead_letters=[MESSAGE], dead_messages=[MESSAGE]),
        job(MESSAGE, state=State.FAILED, attempt=2, error="out_of_memory"),
        without("outputs", lambda row: row.job == MESSAGE))),
    ("a dead letter told again by a successor", both(
        but(dead_messages=(BAD, BAD)), also(events=[Event(5.0, "kill", "intake0")]))),
    ("a trial of a server that is distrusted", also(lines=[
        Line(7.0, "gpu0", "posted", "trial", "t", {"token": 0}), *execution("trial", "t", 7.0, 7.1, "success")[1:]])),
    ("a process that finds its database away", also(events=[Event(1.0, "died", "api0", detail="exit 4")])),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change"), ALLOWED, ids=[what for what, _ in ALLOWED])
def test_what_the_protocol_allows_is_no_broken_promise(what: str, change: Change) -> None:
    assert judge(change(whole())) == []
