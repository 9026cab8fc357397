"""A job as a person follows it: what the API tells of it at one moment, in one sentence and one number."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from genflow.cli.client import Client, Patience, Refused, Unreachable

FIRST_LOOK_S = 0.1
LOOK_S = 0.5
"""Seconds between two looks at a job: as often as the API's progress changes."""

ENDED = ("succeeded", "failed", "canceled", "expired")
_SILENT = 0.5
"""A live worker renews its lease long before half of it is gone."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a job. `fraction` is 0…1, `job` the contract's object, `story` genflow's own; {} before the first."""

    fraction: float
    state: str
    job: dict[str, Any]
    story: dict[str, Any]
    node: str | None = None
    step: int | None = None
    steps: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the job has come to its end."""
        return self.job.get("status") in ENDED


class LeaseWatch:
    """Tells a live worker from a silent one by how much of the lease is left.

    The API shows until when the lease runs, not how long it is: the most that was ever seen left stands for that.
    """

    def __init__(self) -> None:
        self._most_s = 0.0

    def silent_for(self, lease_until: str | None, now: float) -> float | None:
        """Seconds until the lease of a worker that has stopped renewing runs out; None while there is no sign of it."""
        if lease_until is None:
            return None
        left_s = datetime.fromisoformat(lease_until).timestamp() - now
        self._most_s = max(self._most_s, left_s)
        return left_s if left_s < self._most_s * _SILENT else None


def sight_of(job: dict[str, Any], story: dict[str, Any], *, silent_s: float | None, now: float) -> Sight:
    """What to show of a job. `silent_s`: see LeaseWatch; `now` in seconds since 1970 by the API's clock."""
    progress = job["progress"] or {}
    node = progress.get("current_node_class")
    step, steps = progress.get("step"), progress.get("steps")
    running = job["status"] == "running" and story["state"] == "held" and story["step"] == "submit"
    fraction = 1.0 if job["status"] == "succeeded" else float(progress.get("value") or 0.0)
    state = _state(job, story, silent_s=silent_s, now=now)
    if running and silent_s is None and node:
        state += f" — {node}" + (f" {step}/{steps}" if steps else "")
    return Sight(fraction, state, job, story, node, step, steps)


def _state(job: dict[str, Any], story: dict[str, Any], *, silent_s: float | None, now: float) -> str:
    status, state = job["status"], story["state"]
    if status in ("failed", "expired"):
        return f"{status}: {error['message']}" if (error := job["error"]) else status
    if status in ENDED:
        return str(status)
    if status == "canceling":
        return "canceling"
    if why := story.get("waits_because"):
        return f"waiting: {why}"
    if state == "waiting":
        again_s = max(0, math.ceil(datetime.fromisoformat(story["runs_again_at"]).timestamp() - now))
        return f"attempt {story['attempts_spent']} failed, the next in {again_s} s"
    if state == "queued":
        if job["queue_position"] is not None and status == "queued":
            return f"queued, place {job['queue_position']}"
        return "waiting for a worker that goes on with it"
    if silent_s is not None:
        if silent_s <= 0:
            return "waiting: the lease of a dead worker ran out, another takes over"
        return f"waiting: lease of a dead worker runs out in {math.ceil(silent_s)} s"
    server = story["server"] or "a server"
    if story["step"] == "submit":
        return f"running on {server}" if status == "running" else f"in the queue of {server}"
    return {
        "none": f"sending the files to {server}",
        "upload": f"handing the prompt to {server}",
        "wait": f"fetching the pictures from {server}",
    }.get(story["step"], f"finishing on {server}")


async def follow(client: Client, job_id: str) -> AsyncGenerator[Sight]:
    """Look at a job until its end; the last sight is that of its end.

    An API that is away is waited for, with a sight that says so. Raises Unreachable or Refused after `PATIENCE_S`.
    """
    patience, lease, pause_s = Patience(), LeaseWatch(), FIRST_LOOK_S
    last = Sight(0.0, "", {}, {})
    while True:
        try:
            job = await client.get(f"/api/v2/jobs/{job_id}")
            story = await client.get(f"/genflow/v1/jobs/{job_id}")
        except (Unreachable, Refused) as fault:
            waits = f"the API is away, waiting {max(0, math.ceil(patience.left_s))} s more"
            yield Sight(last.fraction, waits, last.job, last.story)
            await patience.bear(fault)
            continue
        patience.answered()
        now = client.server_time()
        last = sight_of(job, story, silent_s=lease.silent_for(story["lease_until"], now), now=now)
        yield last
        if last.ended:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(LOOK_S, pause_s * 1.5)
