"""A job's whole story in order of time: what clients were told, what books and rows say, which faults struck."""

from __future__ import annotations

from chaos.snapshot import Snapshot


def story(run: Snapshot, job: str) -> list[str]:
    """The lines of one job's story, its row first; times count from the run's first event."""
    began = min(run.times, default=0.0)
    found: list[tuple[float, str]] = []
    row = run.job.get(job)
    head = [f"job {job}: {'no row' if row is None else row}"]
    for told in run.told:
        if told.job == job or (row is not None and told.wish == row.wish):
            found.append((told.at, f"client   {told.what} {dict(told.detail) or ''}"))
    for line in run.lines:
        if line.prompt == job:
            found.append((line.at, f"{line.server:8} {line.event} {line.submit[:8]} {dict(line.detail) or ''}"))
    for submit in run.submits_of.get(job, []):
        what = f"submit {submit.no} ({submit.uuid[:8]}, token {submit.token}, {submit.server})"
        found.append((submit.created_at, f"database {what} is written down"))
        if submit.ended_at is not None:
            why = f", stopped for {submit.stop_reason}" if submit.stop_reason else ""
            ran = ", executed" if submit.executed else ""
            found.append((submit.ended_at, f"database {what} is {submit.state.name.lower()}{why}{ran}"))
    for output in run.outputs_of.get(job, []):
        head.append(f"output {output.name} of submit {output.submit_no}: {output.hash[:16]}")
    if row is not None:
        found.append((row.created_at, "database the job is accepted"))
        if row.cancel_at is not None:
            found.append((row.cancel_at, "database its cancel is asked"))
        if row.ended_at is not None:
            found.append((row.ended_at, f"database the job is {row.state.name.lower()}"))
    first, last = min([at for at, _ in found], default=0.0), max([at for at, _ in found], default=0.0)
    for event in run.events:
        if first - event.seconds <= event.at <= last:
            found.append((event.at, f"fault    {event.kind} {event.target} {event.seconds:g} s {event.detail}"))
    return head + [f"{at - began:8.2f} s  {text}".rstrip() for at, text in sorted(found)]
