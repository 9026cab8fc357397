"""A jobs file on its way into the queue: the checks that every way in makes, row by row, and then all rows or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from genflow.errors import GenflowError
from genflow.failures import Policy
from genflow.intake.admission import body_hash, check_assets, check_size
from genflow.intake.jobs_file import BadJobsFile, FileJob
from genflow.queue import Queue
from genflow.queue.batches import BatchRow
from genflow.queue.records import NewJob
from genflow.workflow import AssetRef, asset_refs, check_outputs, read_json


async def enqueue_file(
    queue: Queue,
    name: str,
    jobs: Sequence[FileJob],
    *,
    policy: Policy,
    max_workflow_bytes: int,
    retry_failed: bool = False,
) -> UUID:
    """Check every row against what the fleet's servers have, and commit them as a batch; its id.

    Raises BadJobsFile naming the rows that can't run, and what `Batches.create` raises.
    """
    object_info = await queue.known_object_info()
    rows, refs, bad = await asyncio.to_thread(_rows, jobs, policy, object_info, max_workflow_bytes)
    for job, needed in refs:
        try:
            await check_assets(queue, needed)
        except GenflowError as error:
            bad.append((job.line, error.message))
    if bad:
        raise BadJobsFile(name, sorted(bad))
    return await queue.batches.create(name, rows, retry_failed=retry_failed)


def _rows(
    jobs: Sequence[FileJob], policy: Policy, object_info: Mapping[str, Any] | None, max_bytes: int
) -> tuple[list[BatchRow], list[tuple[FileJob, list[AssetRef]]], list[tuple[int, str]]]:
    rows: list[BatchRow] = []
    refs: list[tuple[FileJob, list[AssetRef]]] = []
    bad: list[tuple[int, str]] = []
    for job in jobs:
        try:
            check_size(job.workflow, max_bytes)
            graph = read_json(job.workflow)  # whose structure the reading of the file has checked
            needed = asset_refs(graph)
            check_outputs(graph, object_info)
        except GenflowError as error:
            bad.append((job.line, error.message))
            continue
        if needed:
            refs.append((job, needed))
        new = NewJob(
            id=job.id,
            workflow=job.workflow,
            body_hash=body_hash(graph if job.body is None else job.body, job.metadata),
            params=job.params,
            policy=policy,
            assets=tuple(ref.id for ref in needed),
            metadata=job.metadata,
            priority=job.priority,
        )
        rows.append(BatchRow(job.line, new, job.values))
    return rows, refs, bad
