"""The rows of a jobs file become jobs: those over a template are made, a few at a time, and all rows or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from genflow.api.making import Files, Maker
from genflow.errors import GenflowError
from genflow.intake.jobs_file import BadJobsFile, FileJob, Row
from genflow.intake.template_rows import row_id
from genflow.outside.opener import FETCHES_AT_ONCE
from genflow.templates import template_of

MOST_URLS = 500
"""Different URLs in one file: more take longer to fetch than a request should last."""


async def jobs_of(maker: Maker, rows: Sequence[Row], name: str, *, tenant: int = 1) -> list[FileJob]:
    """The jobs of these rows, in their order.

    Raises BadJobsFile naming every row that can't be made, and GenflowError where the store or the database is away.
    """
    files = Files(tenant)
    bad: list[tuple[int, str]] = []
    jobs: list[FileJob] = []
    for start in range(0, len(rows), FETCHES_AT_ONCE):
        made = await asyncio.gather(
            *(_job(maker, row, files) for row in rows[start : start + FETCHES_AT_ONCE]), return_exceptions=True
        )
        for row, job in zip(rows[start:], made, strict=False):
            if isinstance(job, FileJob):
                jobs.append(job)
            elif isinstance(job, GenflowError) and job.status < 500:
                bad.append((row.line, job.message))
            else:
                raise job
        if sum(identity.startswith("http") for _, identity in files.ready) > MOST_URLS:
            bad.append((rows[start].line, f"a file names at most {MOST_URLS} URLs: upload the files, or split it"))
            break
    if bad:
        raise BadJobsFile(name, bad)
    return jobs


async def _job(maker: Maker, row: Row, files: Files) -> FileJob:
    if isinstance(row, FileJob):
        return row
    template = template_of(maker.shelf, row.template)
    given = {name: value for name, value in row.values.items() if value is not None}
    named = {each.name for each in template.parameters if each.is_file and each.name in given}
    sources = {name: await maker.source(given[name], files, name) for name in named}
    job_id = row.id or row_id(row.template, given, {name: source.identity for name, source in sources.items()})
    # The seed follows from the id: sent again, the row is the same job to the last number.
    made = await maker.make(template, given, files, draw_seed=lambda: _seed(job_id))
    return FileJob(
        line=row.line,
        id=job_id,
        workflow=made.workflow,
        values=given | {name: source.shown for name, source in sources.items()},
        priority=row.priority,
        metadata=row.metadata,
        params=made.params,
        body=made.body,
    )


def _seed(job_id: UUID) -> int:
    return job_id.int & (2**64 - 1)
