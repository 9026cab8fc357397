"""Promises 2, 3 and 4: one run per job, no write without the token, no finished step again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.rules.broken import Broken
from chaos.snapshot import SKEW_S, JobRow, Snapshot, SubmitRow
from genflow.jobs import SubmitState

STALE_S = 1.0
"""By so much a prompt may be in the books after its submit was closed: what was on its way arrives."""


def every_run_is_a_submit(run: Snapshot) -> Iterator[Broken]:
    """Each execution is of one submit that the database knows, of that job, on that server; none ran twice."""
    times = Counter((each.submit, each.prompt) for each in run.executions)
    for (uuid, prompt), count in times.items():
        row = run.submit.get(uuid)
        if row is None or row.job != prompt:
            yield Broken(f"submit {uuid or 'without a mark'} ran and is no submit of this job", prompt)
        elif count > 1:
            yield Broken(f"submit {row.no} ran {count} times", prompt)
    for each in run.executions:
        row = run.submit.get(each.submit)
        if row is not None and row.server != each.server:
            yield Broken(f"submit {row.no} is of {row.server}, and ran on {each.server}", each.prompt)


def every_prompt_shows_its_token(run: Snapshot) -> Iterator[Broken]:
    """A server hears of a submit under the token that its intent was written with."""
    for line in run.lines:
        row = run.submit.get(line.submit)
        if line.event == "posted" and row is not None and line.detail.get("token") != row.token:
            yield Broken(f"submit {row.no} of token {row.token} was posted with {line.detail.get('token')}", row.job)


def every_run_is_counted(run: Snapshot) -> Iterator[Broken]:
    """A job runs once; each further run is one that protocol section 8 allows, and that the job's own record counts."""
    for job in run.jobs:
        executed = [run.submit[each.submit] for each in run.runs_of.get(job.id, []) if each.submit in run.submit]
        allowed = 1 + sum(_further(job, run.submits_of.get(job.id, [])).values())
        if len(executed) > allowed:
            counted = ", ".join(f"{name} {count}" for name, count in _further(job, executed).items())
            yield Broken(f"{len(executed)} runs, and its record counts {allowed} ({counted})", job.id)
        for state, count in Counter(row.state for row in executed).items():
            if count > (most := _most(job, state, executed)):
                yield Broken(f"{count} runs of submits that are {state.name.lower()}, and {most} are counted", job.id)


def _further(job: JobRow, submits: list[SubmitRow]) -> dict[str, int]:
    """Runs beyond the first that the job's record counts, by their kind."""
    return {
        "retries": max(0, job.attempt - 1),
        "resubmits": job.resubmits,
        "abandoned": sum(row.state is SubmitState.ABANDONED for row in submits),
        "doubled": job.doubled,
        # What somebody stopped gives its attempt back: a canceled job's run, or one taken back at the last moment.
        "stopped": sum(row.state is SubmitState.ENDED and row.stop_reason != "" for row in submits)
        if job.attempt
        else 0,
    }


def _most(job: JobRow, state: SubmitState, executed: list[SubmitRow]) -> int:
    """How many submits of the job in this state may have run."""
    stopped = sum(row.state is state and row.stop_reason != "" for row in executed)
    match state:
        case SubmitState.ENDED:
            return max(1, job.attempt) + stopped
        case SubmitState.LOST:
            return job.resubmits + stopped
        case SubmitState.ABANDONED:
            return len(executed)
        case SubmitState.WITHDRAWN:  # told to stop, and its server forgot it: that it ran was for nothing, and is over
            return job.doubled + stopped
        case _:
            return job.doubled


def no_server_hears_a_stale_submit(run: Snapshot) -> Iterator[Broken]:
    """Nothing of a submit is queued once its job went on without it, unless it is counted as doubled."""
    for line in run.lines:
        row = run.submit.get(line.submit)
        job = None if row is None else run.job.get(row.job)
        if line.event != "posted" or row is None or job is None:
            continue
        later = [each.created_at for each in run.submits_of[row.job] if each.no > row.no]
        over = min([*later, *([] if job.ended_at is None else [job.ended_at])], default=None)
        if over is not None and line.at > over + STALE_S and not (job.doubled or _never_ran(run, line.submit)):
            yield Broken(
                f"submit {row.no} was queued {line.at - over:.2f} s after the job had gone on without it", job.id
            )


def _never_ran(run: Snapshot, uuid: str) -> bool:
    return not any(each.submit == uuid for each in run.executions)


def nothing_begins_after_the_end(run: Snapshot) -> Iterator[Broken]:
    """No run begins once the job is over, but for one that is counted as doubled."""
    for each in run.executions:
        job = run.job.get(each.prompt)
        if job is None or job.ended_at is None or each.began < job.ended_at + SKEW_S:
            continue
        row = run.submit.get(each.submit)
        if not job.doubled and (row is None or row.state is not SubmitState.ABANDONED):
            yield Broken(f"a run began {each.began - job.ended_at:.2f} s after the job's end", job.id)


def a_recorded_success_is_not_repeated(run: Snapshot) -> Iterator[Broken]:
    """Once a success is recorded, nothing of the job is submitted again: a download that fails costs no run."""
    for job, submits in run.submits_of.items():
        good = [row for row in submits if row.state is SubmitState.ENDED and _outcome(run, row) == "success"]
        for row in good[:1]:
            again = [other for other in submits if other.no > row.no and other.created_at > (row.ended_at or 0.0)]
            if again:
                yield Broken(f"submit {row.no} is recorded as a success, and {again[0].no} was made after it", job)


def a_good_run_is_not_lost(run: Snapshot) -> Iterator[Broken]:
    """What ended well is found again by whoever goes on, unless its server has forgotten it since."""
    boots = [(line.server, line.at) for line in run.lines if line.event == "booted"]
    for each in run.executions:
        row = run.submit.get(each.submit)
        if each.outcome != "success" or each.ended is None or row is None or row.state is not SubmitState.LOST:
            continue
        if not any(server == each.server and at > each.ended for server, at in boots):
            yield Broken(f"submit {row.no} ended well and is said to be lost, and its server knew it", row.job)


def nothing_is_taken_away_before_the_end(run: Snapshot) -> Iterator[Broken]:
    """A success's history entry, and any file of a job, stay on the server until the job is over for good."""
    for line in run.lines:
        name = str(line.detail.get("name", ""))
        prompt = name.split("/")[1] if line.event == "emptied" and name.startswith("genflow/") else line.prompt
        job = run.job.get(prompt)
        if line.event not in ("deleted", "emptied") or job is None:
            continue
        if job.ended_at is not None and line.at >= job.ended_at:
            continue
        before = [each for each in run.runs_of.get(job.id, []) if each.server == line.server and each.began < line.at]
        if line.event == "emptied" or (before and before[-1].outcome == "success"):
            yield Broken(
                f"{line.event} on {line.server} before the job was over: {name or 'its history entry'}", job.id
            )


def _outcome(run: Snapshot, row: SubmitRow) -> str:
    return next((each.outcome for each in run.runs_of.get(row.job, []) if each.submit == row.uuid), "")


def no_neighbour_is_harmed(run: Snapshot) -> Iterator[Broken]:
    """What was interrupted was to be stopped: its own submit says why, or it is one that was given up."""
    for each in run.executions:
        row = run.submit.get(each.submit)
        if each.outcome != "interrupted" or row is None:
            continue
        given_up = row.state in (SubmitState.ABANDONED, SubmitState.REFUSED, SubmitState.WITHDRAWN)
        if not row.stop_reason and not given_up:
            yield Broken(f"submit {row.no} was interrupted, and nobody had asked for it", row.job)


def a_server_holds_no_more_than_its_slots(run: Snapshot) -> Iterator[Broken]:
    """At no time more prompts of ours on a server than slots, those left out that were given up."""
    for server in sorted({line.server for line in run.lines}):
        held: set[str] = set()
        for line in run.lines:
            if line.server != server:
                continue
            match line.event:
                case "booted":
                    held.clear()
                case "posted":
                    row = run.submit.get(line.submit)
                    if row is not None and row.state not in (SubmitState.ABANDONED, SubmitState.REFUSED):
                        held.add(line.submit)
                case "removed" | "ended" | "killed":
                    held.discard(line.submit)
            if len(held) > run.slots:
                yield Broken(f"{server} held {len(held)} prompts at once, and has {run.slots} slots", line.prompt)
                held.clear()


def a_guarded_fleet_doubles_nothing(run: Snapshot) -> Iterator[Broken]:
    """Where servers refuse a submit that they have seen, no run is doubled at all."""
    for job in run.jobs:
        if run.guarded and job.doubled:
            yield Broken(f"{job.doubled} doubled runs on servers that refuse them", job.id)
