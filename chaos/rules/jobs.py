"""Promises 1, 5, 6 and 7: nothing lost, no false end, cancel means canceled, nobody sees another's job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.plan import MESSAGES, OUTPUTS
from chaos.rules.broken import Broken
from chaos.snapshot import SKEW_S, JobRow, Snapshot, Told
from genflow.jobs import State, SubmitState

ACCEPTED = ("accepted", "known", "published")
ALLOWED_FOR_A_STRANGER = (404, 429, 503)
_CAUSES = {
    "torch.OutOfMemoryError": 2,  # one more try, and no third
    "IndexError": 1,
}
"""Errors in the books that fail a job for good, and how many of them it takes."""


def what_was_accepted_is_not_lost(run: Snapshot) -> Iterator[Broken]:
    """Each job that a client was told of is in the database, under the client's tenant, and has come to its end."""
    for told in run.told:
        if told.what in ACCEPTED:
            row = run.job.get(told.job)
            if row is None:
                yield Broken(f"{told.what} at {told.at:.2f}, and there is no such job", told.job)
            elif not row.state.terminal:
                yield Broken(f"{told.what}, and not over: it is {row.state.name.lower()}", told.job)
            elif told.what != "published" and row.tenant != run.wish[told.wish].tenant:
                yield Broken(f"accepted for {run.wish[told.wish].tenant}, and it is {row.tenant}'s", told.job)
        elif told.what == "unknown":
            yield Broken("its own client was told that there is no such job", told.job)
        elif told.what == "left":
            yield Broken("its client never saw its end", told.job)


def each_wish_is_one_job(run: Snapshot) -> Iterator[Broken]:
    """A request is one job however often it was sent; half a request is none; all answers name that same job."""
    made: dict[int, list[str]] = defaultdict(list)
    for row in run.jobs:
        if row.wish is not None:
            made[row.wish].append(row.id)
    for wish in run.wishes:
        most = len(wish.ids) or (0 if wish.kind == "torn" else 1)
        if len(made[wish.no]) > most:
            for job in made[wish.no]:
                yield Broken(f"wish {wish.no} ({wish.kind}) made {len(made[wish.no])} jobs, not {most}", job)
    for told in run.told:
        if told.what in ACCEPTED and told.job in run.job and run.job[told.job].wish != told.wish:
            yield Broken(f"wish {told.wish} was told of the job of wish {run.job[told.job].wish}", told.job)


def a_success_is_what_its_run_made(run: Snapshot) -> Iterator[Broken]:
    """Every output is, byte for byte, what one successful run of this job wrote; none is missing, none is another's."""
    for row in run.jobs:
        outputs = run.outputs_of.get(row.id, [])
        wish = run.wish_of(row.id)
        if row.state is not State.SUCCEEDED:
            if outputs:
                yield Broken(f"{row.state.name.lower()}, and it has {len(outputs)} outputs", row.id)
            continue
        if wish is not None and not wish.good:
            yield Broken(f"succeeded, and it can't: {wish.kind}", row.id)
        elif wish is not None and len(outputs) != OUTPUTS[wish.kind]:
            yield Broken(f"{len(outputs)} outputs, not {OUTPUTS[wish.kind]}", row.id)
        good = [each.submit for each in run.runs_of.get(row.id, []) if each.outcome == "success"]
        if not any({each.hash for each in outputs} <= set(run.written.get(uuid, {}).values()) for uuid in good):
            yield Broken("its outputs are not those of one successful run of it", row.id)
        for output in outputs:
            if output.stored != output.hash:
                yield Broken(f"{output.name}: the store holds {output.stored or 'nothing'}, not {output.hash}", row.id)


def what_was_downloaded_is_what_was_made(run: Snapshot) -> Iterator[Broken]:
    """The bytes that clients got are those of the output that they asked for."""
    outputs = {each.id: each for each in run.outputs}
    for told in run.told:
        if told.what == "downloaded":
            output = outputs.get(str(told.detail["output"]))
            if output is None or output.job != told.job:
                yield Broken("its client got a file that is no output of it", told.job)
            elif not output.hash == told.detail["hash"] == str(told.detail["listed"]).removeprefix("blake3:"):
                yield Broken(f"{output.name}: its client got {told.detail['hash']}, not {output.hash}", told.job)


def a_failure_has_a_cause(run: Snapshot) -> Iterator[Broken]:
    """A job fails only if it can't succeed, or if the books show the errors that fail it."""
    for row in run.jobs:
        wish = run.wish_of(row.id)
        if row.state is not State.FAILED or wish is None or not wish.good:
            continue
        outcomes = [each.outcome for each in run.runs_of.get(row.id, [])]
        if not any(outcomes.count(kind) >= count for kind, count in _CAUSES.items()):
            yield Broken(f"failed ({row.error}), and its runs ended as {outcomes or 'nothing'}", row.id)


def a_job_that_ends_otherwise_was_canceled(run: Snapshot) -> Iterator[Broken]:
    """Only what a client canceled is canceled, and nothing expires that has no deadline."""
    asked = {wish.no for wish in run.wishes if wish.cancel}
    for row in run.jobs:
        if row.state is State.EXPIRED or (row.state is State.CANCELED and row.wish not in asked):
            yield Broken(f"{row.state.name.lower()}, and nobody asked for it", row.id)


def cancel_means_canceled(run: Snapshot) -> Iterator[Broken]:
    """After a cancel's answer nothing of the job begins, and it ends canceled; one that was over stays as it was."""
    for told in run.told:
        if told.what != "canceled" or told.job not in run.job:
            continue
        row, status = run.job[told.job], told.detail["status"]
        if status in ("canceled", "canceling"):
            if row.state is not State.CANCELED:
                yield Broken(f"its cancel was answered {status}, and it {row.state.name.lower()}", row.id)
            yield from _begun_after(run, row, told)
        elif status != row.state.name.lower():
            yield Broken(f"its cancel was answered {status}, and it is {row.state.name.lower()}", row.id)


def _begun_after(run: Snapshot, row: JobRow, told: Told) -> Iterator[Broken]:
    for submit in run.submits_of.get(row.id, []):
        if row.cancel_at is not None and submit.created_at > row.cancel_at:
            yield Broken(f"submit {submit.no} was made after the cancel", row.id)
    if told.detail["status"] == "canceled":
        for each in run.runs_of.get(row.id, []):
            submit_row = run.submit.get(each.submit)
            given_up = submit_row is not None and submit_row.state is SubmitState.ABANDONED
            if each.began > told.at + SKEW_S and not given_up and not row.doubled:
                yield Broken(f"a run began {each.began - told.at:.2f} s after the job was said to be canceled", row.id)


def an_end_stays(run: Snapshot) -> Iterator[Broken]:
    """The end that a client saw is the end that the job has."""
    for told in run.told:
        if told.what == "ended" and (row := run.job.get(told.job)) is not None:
            if told.detail["status"] != row.state.name.lower():
                yield Broken(f"its client saw {told.detail['status']}, and it is {row.state.name.lower()}", row.id)
            elif told.detail["outputs"] != len(run.outputs_of.get(row.id, [])):
                yield Broken(
                    f"its client saw {told.detail['outputs']} outputs of {len(run.outputs_of[row.id])}", row.id
                )


def nobody_sees_anothers(run: Snapshot) -> Iterator[Broken]:
    """To another tenant a job, its story, its workflow and its files do not exist."""
    for told in run.told:
        if told.what == "trespassed" and told.detail["status"] not in ALLOWED_FOR_A_STRANGER:
            yield Broken(f"another tenant asked for {told.detail['path']} and got {told.detail['status']}", told.job)


def one_dead_letter_a_failed_job(run: Snapshot) -> Iterator[Broken]:
    """A failed job is one dead letter; one that came by RabbitMQ is told there too, again only where a teller died."""
    failed = {row.id for row in run.jobs if row.state is State.FAILED}
    for job in failed ^ set(run.dead_letters):
        yield Broken("failed, and no dead letter" if job in failed else "a dead letter, and it did not fail", job)
    dying = sum(event.kind in ("kill", "broker", "died at") or event.kind.startswith("link") for event in run.events)
    for row in run.jobs:
        wish = run.wish_of(row.id)
        if wish is None or wish.kind not in MESSAGES:
            continue
        letters = run.dead_messages.count(row.id)
        if row.id in failed and not letters:
            yield Broken("failed, and RabbitMQ's dead-letter queue has nothing of it", row.id)
        elif letters > (1 + min(dying, 2) if row.id in failed else 0):
            yield Broken(f"{row.state.name.lower()}, and {letters} dead letters in RabbitMQ", row.id)


def every_message_is_done_with(run: Snapshot) -> Iterator[Broken]:
    """No message is left in the queue."""
    if run.messages_left:
        yield Broken(f"{run.messages_left} messages are left in RabbitMQ")
