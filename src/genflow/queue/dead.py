"""Dead letters: jobs that failed for good. They are listed, counted, shown, requeued as new jobs, and purged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import structlog
from psycopg import errors as pg
from psycopg.types.json import Json

from genflow.edits import set_inputs
from genflow.errors import GenflowError
from genflow.jobs import State
from genflow.protocol import posted_graph
from genflow.queue.classes import Classes
from genflow.queue.records import input_names, inputs_of
from genflow.queue.writer import Row, Writer
from genflow.workflow import asset_refs, missing_asset, parse_workflow, substitute

log = structlog.get_logger()

GROUPS = 200
"""Groups that are told at most, the largest first."""


class GroupBy(StrEnum):
    """What dead letters can be counted by."""

    CLASS = "class"
    CODE = "code"
    REASON = "reason"
    NODE = "node"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead letters are meant: those that fit all that is given. `requeued` ones are done with, and apart."""

    since: datetime | None = None
    until: datetime | None = None
    failure_class: str | None = None
    code: str | None = None
    node_class: str | None = None
    server: str | None = None
    batch: UUID | None = None
    says: str | None = None
    """A piece of the reason, in whatever case."""
    requeued: bool = False

    @property
    def narrows(self) -> bool:
        """Whether anything is given that leaves some out."""
        return self != DeadFilter(requeued=self.requeued)

    def params(self) -> dict[str, Any]:
        """The filter as dead_list.sql and dead_groups.sql take it."""
        return {
            "since": self.since,
            "until": self.until,
            "class": self.failure_class,
            "code": self.code,
            "node_class": self.node_class,
            "server": self.server,
            "batch": self.batch,
            "says": self.says,
            "requeued": self.requeued,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What takes the place of a dead letter's workflow: the new text, its content's hash, and what was set in it."""

    workflow: str
    body_hash: bytes
    values: Mapping[str, Any] | None = None


class AlreadyRequeued(GenflowError):
    """The dead letter was requeued before; `details.job_id` is what came of it."""

    def __init__(self, job_id: UUID, made: UUID) -> None:
        super().__init__(
            "already_requeued",
            f"the dead letter {job_id} was requeued already, as job {made}; say “again” to make one more",
            status=409,
            details={"field": "id", "job_id": str(made), "got": str(job_id)},
        )


class DeadLetters:
    """The dead letters of one queue. `full` makes the refusal of a job past the limit, `hint` tells of a new one."""

    def __init__(
        self,
        writer: Writer,
        classes: Classes,
        *,
        queue_limit: int,
        retention_s: float,
        full: Callable[[int], Awaitable[GenflowError]],
        hint: Callable[[str], Awaitable[None]],
    ) -> None:
        self._writer = writer
        self._classes = classes
        self._limit = queue_limit
        self._retention_s = retention_s
        self._full = full
        self._hint = hint

    async def page(
        self, wanted: DeadFilter, *, limit: int, before: tuple[datetime, UUID] | None = None, tenant: int = 1
    ) -> list[Row]:
        """Up to `limit` rows of dead_list.sql, the latest first, that failed before the one at `before`."""
        failed_at, job_id = before or (None, None)
        return await self._writer.write(
            "dead_list",
            wanted.params() | {"tenant": tenant, "limit": limit, "before": failed_at, "before_id": job_id},
        )

    async def groups(self, wanted: DeadFilter, by: GroupBy, *, tenant: int = 1) -> list[Row]:
        """How many there are of each, with an example; the largest groups first, at most `GROUPS`."""
        return await self._writer.write(
            "dead_groups", wanted.params() | {"tenant": tenant, "by": by.value, "limit": GROUPS}
        )

    async def between(self, first: UUID, last: UUID, *, tenant: int = 1) -> list[UUID]:
        """The dead letters with ids from `first` to `last`, two at most."""
        rows = await self._writer.write("dead_by_prefix", {"first": first, "last": last, "tenant": tenant})
        return [row["id"] for row in rows]

    async def look(self, job_id: UUID, *, tenant: int = 1) -> Row:
        """One dead letter as dead_letter.sql tells it, and `posted`: the graph as it was posted last, or None.

        GenflowError: 404 `not_found` for an unknown job, 409 `not_a_dead_letter` for one that has not failed.
        """
        rows = await self._writer.write("dead_letter", {"job": job_id, "tenant": tenant})
        if not rows:
            raise await self._no_dead_letter(job_id, tenant)
        return rows[0] | {"posted": _posted(rows[0])}

    async def requeue(
        self,
        job_id: UUID,
        *,
        values: Mapping[str, Any] | None = None,
        mended: Mended | None = None,
        again: bool = False,
        dry_run: bool = False,
        tenant: int = 1,
    ) -> UUID:
        """Make a new job of a dead letter, with these inputs set or as `mended`; its id. The dead letter stays, marked.

        The new job has the policy, labels, batch and inputs of the old one and no key of its own. With `dry_run`
        everything is checked and nothing made. Raises AlreadyRequeued unless `again`, QueueFull, and GenflowError:
        `not_found` or `not_a_dead_letter` as `look`, `invalid_set` or what `parse_workflow` raises for a change that
        can't be, `missing_asset` where an input is gone.
        """
        rows = await self._writer.write("dead_letter", {"job": job_id, "tenant": tenant})
        if not rows:
            raise await self._no_dead_letter(job_id, tenant)
        dead = rows[0]
        if dead["requeued_as"] is not None and not again:
            raise AlreadyRequeued(job_id, dead["requeued_as"])
        workflow, params, changed = dead["workflow"], dead["params"], dead["set_values"]
        if mended is not None:
            workflow, params, changed = mended.workflow, None, mended.values
        if values:
            params = _params_with(params, workflow, values)
            workflow = set_inputs(workflow, values)
            changed = {**(changed or {}), **values}
        inputs = await self._inputs(workflow, tenant)
        new = uuid4()
        if dry_run:
            return new
        try:
            outcome = await self._writer.write(
                "requeue",
                {
                    "job": job_id,
                    "new": new,
                    "tenant": tenant,
                    "again": again,
                    "class": (await self._classes.of([workflow]))[0],
                    "workflow": workflow,
                    "body_hash": None if mended is None else mended.body_hash,
                    "params": None if params is None else Json(params),
                    "set_values": None if changed is None else Json(changed),
                    "assets": inputs,
                    "queue_limit": self._limit,
                    "retention_s": self._retention_s,
                },
            )
        except pg.ForeignKeyViolation:
            raise missing_asset("workflow", "unknown", "it was deleted just now") from None
        if not outcome:
            raise await self._no_dead_letter(job_id, tenant)
        made = outcome[0]
        # The mark of a statement that was sent twice is this very job's: the first one had made it.
        if not made["made"] and made["requeued_as"] != new:
            if made["requeued_as"] is not None and not again:
                raise AlreadyRequeued(job_id, made["requeued_as"])
            raise await self._full(made["live"])
        log.info("requeued", job=str(job_id), as_job=str(new))
        await self._hint("queued")
        return new

    async def purge(self, jobs: Sequence[UUID], *, tenant: int = 1) -> list[UUID]:
        """Delete those of the jobs that are dead letters; which. Their keys stand: a known id runs nothing."""
        rows = await self._writer.write("purge_dead", {"jobs": list(jobs), "tenant": tenant})
        return [row["id"] for row in rows]

    async def _inputs(self, workflow: str, tenant: int) -> list[UUID]:
        """The workflow's inputs. Refuses what the door would: a change may be at fault, a file may be gone."""
        named = [ref.id for ref in asset_refs(parse_workflow(workflow))]
        rows = await self._writer.write("assets_by_id", {"assets": named, "tenant": tenant}) if named else []
        there = {row["id"] for row in rows if row["blob_hash"] is not None}
        for asset in named:
            if asset not in there:
                raise missing_asset("workflow", "unknown", f"the file {asset} is no longer there", got=str(asset))
        return named

    async def _no_dead_letter(self, job_id: UUID, tenant: int) -> GenflowError:
        rows = await self._writer.write("job_status", {"job": job_id, "tenant": tenant})
        shown = str(job_id)
        if not rows or State(rows[0]["state"]) is State.FAILED:
            message = f"There is no dead letter {shown}, or it is past its time."
            return GenflowError("not_found", message, status=404, details={"field": "id", "got": shown})
        state = State(rows[0]["state"]).name.lower()
        message = f"The job {shown} is {state}; only a job that failed for good is a dead letter."
        return GenflowError("not_a_dead_letter", message, status=409, details={"field": "id", "got": state})


def _params_with(
    params: Mapping[str, Any] | None, workflow: str, values: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """A portrait's parameters after its workflow was changed: one that said what the input said follows it."""
    if params is None:
        return None
    graph = parse_workflow(workflow)
    changed = dict(params)
    for name, value in values.items():
        node, _, key = name.rpartition(".")
        if key in params and graph.get(node, {}).get("inputs", {}).get(key, ...) == params[key]:
            changed[key] = value
    return changed


def _posted(row: Row) -> dict[str, Any] | None:
    """The graph of the newest submit, as `prompt_body` made it; None where nothing was posted."""
    if row["posted_no"] is None:
        return None
    try:
        graph = parse_workflow(row["workflow"])
    except GenflowError:
        return None
    names = {ref.id: f"(the file {ref.id} is gone)" for ref in asset_refs(graph)}
    names |= input_names(row["id"], inputs_of(row["inputs"]))
    return posted_graph(substitute(graph, names), row["id"], row["posted_no"])
