"""Many jobs in one transaction, each under an id of its own: what a file or a broker brings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from psycopg import errors as pg

from genflow.queue.records import NewJob
from genflow.queue.writer import Row, Writer

_AGAIN_S = 0.05
_TRIES = 100


class Fate(StrEnum):
    """What became of one of many jobs."""

    NEW = "new"
    KNOWN = "known"
    """Accepted before, with this very body."""
    OTHER_BODY = "other_body"
    """Its id belongs to a job with another body; nothing was changed."""
    FULL = "full"
    """The queue holds as many live jobs as it may; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One of many jobs as it arrived. `job_id` is where its id leads: itself, or the newest job requeued from it."""

    fate: Fate
    job_id: UUID


async def enqueue_many(
    writer: Writer,
    jobs: Sequence[NewJob],
    classes: Sequence[int],
    *,
    scope: str,
    queue_limit: int,
    retention_s: float,
    tenant: int = 1,
    rabbit_queue: str | None = None,
    batch: UUID | None = None,
) -> list[Arrival]:
    """Commit those of `jobs` that are new, in their order, each in its class of `classes`; what became of each.

    The ids are keys of `scope` (job_keys) and differ from each other. May be sent again after a lost answer: what was
    committed is known then. psycopg's own IntegrityError or DataError, with nothing committed, where a single row is at
    fault, such as an asset that was just deleted.
    """
    arrivals: dict[int, Arrival] = {}
    left = list(range(len(jobs)))
    for _ in range(_TRIES):
        try:
            rows = await writer.write(
                "enqueue_many",
                _params([jobs[place] for place in left], [classes[place] for place in left])
                | {
                    "scope": scope,
                    "tenant": tenant,
                    "queue_limit": queue_limit,
                    "retention_s": retention_s,
                    "rabbit_queue": rabbit_queue,
                    "batch": batch,
                },
            )
        except pg.UniqueViolation:
            rows = []  # one of the ids has just become a job another way
        for row in rows:
            place = left[row["place"] - 1]
            if (arrival := _arrival(jobs[place].id, row)) is not None:
                arrivals[place] = arrival
        left = [place for place in left if place not in arrivals]
        if not left:
            return [arrivals[place] for place in range(len(jobs))]
        await asyncio.sleep(_AGAIN_S)
    raise TimeoutError(f"the ids of {len(left)} jobs are being taken by others, and stay so")


def _arrival(job_id: UUID, row: Row) -> Arrival | None:
    if row["new"]:
        return Arrival(Fate.NEW, job_id)
    if row["job_id"] is not None:
        return Arrival(Fate.KNOWN if row["same"] else Fate.OTHER_BODY, row["job_id"])
    return Arrival(Fate.FULL, job_id) if row["full"] else None


def _params(jobs: Sequence[NewJob], classes: Sequence[int]) -> dict[str, object]:
    refs = [(asset, job.id) for job in jobs for asset in job.assets]
    policies = {policy: json.dumps(policy.to_json()) for policy in {job.policy for job in jobs}}
    return {
        "jobs": [job.id for job in jobs],
        "body_hashes": [job.body_hash for job in jobs],
        "workflows": [job.workflow for job in jobs],
        "params": [None if job.params is None else json.dumps(job.params) for job in jobs],
        "metadata": [json.dumps(job.metadata) for job in jobs],
        "policies": [policies[job.policy] for job in jobs],
        "priorities": [job.priority for job in jobs],
        "classes": list(classes),
        "ref_assets": [asset for asset, _ in refs],
        "ref_jobs": [job for _, job in refs],
    }
