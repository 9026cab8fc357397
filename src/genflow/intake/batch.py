"""A jobs file on its way into the queue: the checks that every way in makes, row by row, and then all rows or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from genflow.errors import GenflowError
from genflow.failures import Policy
from genflow.intake.admission import body_hash, check_assets, check_size
from genflow.intake.jobs_file import BadJobsFile, FileJob
from genflow.queue import Queue
from genflow.queue.batches import BatchRow
from genflow.queue.records import NewJob
from genflow.validation import FleetNodes, check_workflow, may_pass_soon
from genflow.workflow import AssetRef, asset_refs, read_json


async def enqueue_file(
    queue: Queue,
    name: str,
    jobs: Sequence[FileJob],
    *,
    policy: Policy,
    max_workflow_bytes: int,
    lenient: bool = False,
    retry_failed: bool = False,
    tenant: int = 1,
) -> UUID:
    """Check every row against what the fleet's servers have, and commit them as a batch; its id.

    `lenient` is as for `check_workflow`. The servers are asked anew where one of their lists is why a row is refused.

    Raises BadJobsFile naming the rows that can't run, and what `Batches.create` raises.
    """
    nodes = await queue.known_nodes(now=True)
    rows, refs, refused = await asyncio.to_thread(_rows, jobs, policy, nodes, lenient, max_workflow_bytes)
    if any(may_pass_soon(error) for _, error in refused):
        nodes = await queue.known_nodes(anew=True)
        rows, refs, refused = await asyncio.to_thread(_rows, jobs, policy, nodes, lenient, max_workflow_bytes)
    bad = [(line, error.message) for line, error in refused]
    for job, needed in refs:
        try:
            await check_assets(queue, needed, tenant=tenant)
        except GenflowError as error:
            bad.append((job.line, error.message))
    if bad:
        raise BadJobsFile(name, sorted(bad))
    return await queue.batches.create(name, rows, retry_failed=retry_failed, tenant=tenant)


def _rows(
    jobs: Sequence[FileJob], policy: Policy, nodes: FleetNodes | None, lenient: bool, max_bytes: int
) -> tuple[list[BatchRow], list[tuple[FileJob, list[AssetRef]]], list[tuple[int, GenflowError]]]:
    rows: list[BatchRow] = []
    refs: list[tuple[FileJob, list[AssetRef]]] = []
    bad: list[tuple[int, GenflowError]] = []
    for job in jobs:
        try:
            check_size(job.workflow, max_bytes)
            graph = read_json(job.workflow)  # whose structure the reading of the file has checked
            needed = asset_refs(graph)
            check_workflow(graph, nodes, lenient=lenient)
        except GenflowError as error:
            bad.append((job.line, error))
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
