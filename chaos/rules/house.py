"""Promise 8 and what is left behind: all is bounded, nothing dies by itself, nothing stays on a server."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.rules.broken import Broken
from chaos.snapshot import Snapshot
from genflow.jobs import SubmitState

UNREACHABLE = "exit 4"
"""A process that starts while its database is away says so and ends with 4; whoever runs it starts it again."""


def the_queue_is_bounded(run: Snapshot) -> Iterator[Broken]:
    """No more live jobs than the limit, but for those that were let in at the same moment."""
    most = max((count for _, count in run.live), default=0)
    if most > run.queue_limit + run.clients_at_once:
        yield Broken(f"{most} live jobs, and the limit is {run.queue_limit}")


def memory_is_bounded(run: Snapshot) -> Iterator[Broken]:
    """No process grows past a bound."""
    for name, held in run.memory.items():
        if held > run.memory_limit:
            yield Broken(f"{name} held {held / 2**20:.0f} MiB, more than {run.memory_limit / 2**20:.0f}")


def nothing_dies_by_itself(run: Snapshot) -> Iterator[Broken]:
    """A process ends when it is killed, and at no other time."""
    for event in run.events:
        if event.kind == "died" and event.detail != UNREACHABLE:
            yield Broken(f"{event.target} ended by itself: {event.detail}")


def the_api_has_an_answer(run: Snapshot) -> Iterator[Broken]:
    """Under faults too the API answers with its own statuses: never a bare 500."""
    for told in run.told:
        if told.what == "odd":
            yield Broken(f"{told.detail['path']} answered {told.detail['status']}: {told.detail['body']}", told.job)
        elif told.what == "refused":
            yield Broken(f"wish {told.wish} was refused with {told.detail['status']}: {told.detail['answer']}")


def nothing_is_left_to_do(run: Snapshot) -> Iterator[Broken]:
    """After the drain: no open submit, no chore, nothing in a server's queue."""
    for row in run.submits:
        if row.state.open:
            yield Broken(f"submit {row.no} is still {row.state.name.lower()}", row.job)
    for chore in run.chores_left:
        yield Broken(f"the chore {chore} is left", chore.partition(" ")[2])
    for server, prompts in run.queued_left.items():
        for prompt in prompts:
            yield Broken(f"still in the queue of {server}", prompt)


def an_ended_job_leaves_no_file(run: Snapshot) -> Iterator[Broken]:
    """After the drain what a run wrote on its server is emptied, and so is what was uploaded for its job."""
    for line in run.lines:
        row = run.submit.get(line.submit)
        if line.event != "wrote" or row is None or row.state not in (SubmitState.ENDED, SubmitState.ABANDONED):
            continue
        name = f"{line.detail['kind']}/{line.detail['name']}"
        if run.files.get(line.server, {}).get(name, 0) > 0:
            yield Broken(f"{name} of submit {row.no} still lies on {line.server}", row.job)
    for server, files in run.files.items():
        for name, size in files.items():
            if name.startswith("input/genflow/") and size:
                yield Broken(f"{name} still lies on {server}", name.split("/")[2])
