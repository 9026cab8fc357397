"""The queue as clients' requests use it: accept, look, cancel. It holds no job and knows no server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.types.json import Json, Jsonb

from genflow import failpoints
from genflow.errors import GenflowError
from genflow.jobs import State, Status
from genflow.postgres.pool import Pool
from genflow.protocol import boottime
from genflow.queue.batches import Batches
from genflow.queue.classes import Classes
from genflow.queue.dead import DeadLetters
from genflow.queue.erasure import Erasure
from genflow.queue.files import Files
from genflow.queue.many import Arrival, Fate, enqueue_many
from genflow.queue.records import (
    KEY_TTL_S,
    AssetRecord,
    JobView,
    KeyInUse,
    NewJob,
    input_names,
    inputs_of,
    new_view,
    view_of,
)
from genflow.queue.servers import LATELY_S, Servers, why_bound
from genflow.queue.statements import statement
from genflow.queue.watches import Watches
from genflow.queue.writer import OUTAGE, DirectWriter, Row
from genflow.validation import FleetNodes
from genflow.workflow import asset_refs, substitute

COUNT_AGAIN_S = 1.0
"""Seconds for which the number of live jobs is known from a count and from what was accepted since."""
PLACES_TOLD = 100
"""A job further back learns its place at its next look: to count it costs more than all the rest of the submit."""
HINT_PAUSE_S = 0.02
"""Seconds between two hints that there are new jobs: a burst of submits is one hint, and then another."""


class QueueFull(GenflowError):
    """The queue holds as many live jobs as it may."""

    def __init__(self, live: int, limit: int, retry_after_s: int) -> None:
        super().__init__(
            "queue_full",
            f"the queue holds its limit of {limit} jobs; try again in {retry_after_s} s",
            status=429,
            details={"limit": limit, "got": live},
            headers={"Retry-After": str(retry_after_s)},
        )


def retry_after_s(excess: int, ended_last_minute: int) -> int:
    """Whole seconds until `excess` jobs have left at the last minute's rate: at least 1, at most 60."""
    if ended_last_minute <= 0:
        return 60
    return min(60, max(1, math.ceil(excess / (ended_last_minute / 60))))


class Depth:
    """How full the queue is, as this process knows it: far from its limit nothing need be counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._live = limit
        self._counted_at = -math.inf

    def unsure(self) -> bool:
        """Whether the next job must be counted in: the last count is old, or half of the limit is reached."""
        return boottime() - self._counted_at > COUNT_AGAIN_S or 2 * self._live >= self._limit

    def long(self) -> bool:
        """Whether more jobs were live at the last count than are told their place at once."""
        return not self.unsure() and self._live > PLACES_TOLD

    def learned(self, live: int | None, *, accepted: bool) -> None:
        """What a submit counted (None = nothing), and that it made a job."""
        if live is not None:
            self._live, self._counted_at = live, boottime()
        self._live += accepted


class Queue:
    """Accepts jobs and shows them. Every method waits through a short outage of the database."""

    def __init__(self, pool: Pool, *, queue_limit: int, retention_s: float, patience_s: float = 10.0) -> None:
        self._pool = pool
        self.writer = DirectWriter(pool, patience_s=patience_s)
        """Waits through an outage as this queue does."""
        self._limit = queue_limit
        self._retention_s = retention_s
        self._hints: dict[str, asyncio.Task[None]] = {}
        self._due: set[str] = set()
        self._depth = Depth(queue_limit)
        self._classes = Classes(self.writer)
        self.servers = Servers(self.writer)
        self.watches = Watches(self.writer)
        self.files = Files(self.writer, retention_s=retention_s)
        self.erasure = Erasure(self.writer)
        self.dead = DeadLetters(
            self.writer,
            self._classes,
            queue_limit=queue_limit,
            retention_s=retention_s,
            full=self._full,
            hint=self._hint,
        )
        self.batches = Batches(
            pool,
            self._classes,
            self.dead,
            queue_limit=queue_limit,
            retention_s=retention_s,
            patience_s=patience_s,
            hint=self._hint,
        )

    async def enqueue(self, job: NewJob) -> JobView:
        """Commit a job, and show it. Raises KeyInUse or QueueFull; after either, nothing is left behind.

        A commit whose outcome a lost connection hides is read back by the job's id.
        """
        params = {
            "job": job.id,
            "tenant": job.tenant,
            "priority": job.priority,
            "class": (await self._classes.of([job.workflow]))[0],
            "start_by_s": job.start_by_s,
            "key": job.idempotency_key,
            "key_ttl": KEY_TTL_S,
            "body_hash": job.body_hash,
            "workflow": job.workflow,
            "params": None if job.params is None else Json(job.params),
            "metadata": Jsonb(job.metadata),
            "sealed": job.sealed,
            "policy": Json(job.policy.to_json()),
            "assets": list(job.assets),
            "queue_limit": self._limit,
            "count": self._depth.unsure(),
            "place": not self._depth.long(),
            "retention_s": self._retention_s,
        }
        try:
            outcome = await self._insert(params)
        except OUTAGE:
            if view := await self.view(job.id, tenant=job.tenant):
                return view
            try:
                outcome = await self._insert(params)
            except pg.UniqueViolation:  # the first commit arrived after all
                if view := await self.view(job.id, tenant=job.tenant):
                    return view
                raise
        failpoints.hit("enqueue.after_commit")
        self._depth.learned(outcome["live"] if params["count"] else None, accepted=outcome["accepted"])
        if outcome["accepted"]:
            self._hint_soon("queued")
            return new_view(job, outcome)
        if outcome["live"] >= self._limit:
            raise await self._full(outcome["live"])
        owner = await self._key_owner(job.idempotency_key, job.tenant)
        owner_id = None if owner is None else owner["job_id"]
        view = await self.view(job.id, tenant=job.tenant) if owner_id == job.id else None
        if view is None:
            raise KeyInUse(job_id=owner_id)
        return view

    async def made_by(self, key: str, body_hash: bytes, *, tenant: int = 1) -> UUID | None:
        """The job that a request with this very key and body made within the last day, or the newest requeued of it."""
        owner = await self._key_owner(key, tenant)
        return owner["job_id"] if owner is not None and bytes(owner["body_hash"]) == body_hash else None

    async def _key_owner(self, key: str | None, tenant: int) -> Row | None:
        rows = await self.writer.write("key_owner", {"tenant": tenant, "scope": "submit", "key": key})
        return rows[0] if rows else None

    async def enqueue_many(
        self, jobs: Sequence[NewJob], *, scope: str, rabbit_queue: str | None = None
    ) -> list[Arrival]:
        """Commit those of many jobs with ids of their own that are new; see `many.enqueue_many`."""
        classes = await self._classes.of([job.workflow for job in jobs])
        arrivals = await enqueue_many(
            self.writer, jobs, classes, scope=scope, queue_limit=self._limit, retention_s=self._retention_s,
            rabbit_queue=rabbit_queue,
        )  # fmt: skip
        if any(arrival.fate is Fate.NEW for arrival in arrivals):
            await self._hint("queued")
        return arrivals

    async def has_room(self) -> bool:
        """Whether a tenth of `queue_limit` is free again: who stopped at the limit may go on."""
        rows = await self.writer.write("room", {"queue_limit": self._limit})
        live: int = rows[0]["live"]
        return live <= self._limit - max(1, self._limit // 10)

    async def settled(self, jobs: Sequence[UUID]) -> set[UUID]:
        """Those of the jobs that are over, their dead letters told."""
        return {row["id"] for row in await self.writer.write("settled", {"jobs": list(jobs)})}

    async def _insert(self, params: Mapping[str, Any]) -> Row:
        try:
            async with self._pool.connection(timeout=5.0) as connection:
                failpoints.hit("enqueue.before_commit")
                cursor = await connection.execute(statement("enqueue"), params)
                row = await cursor.fetchone()
        except pg.ForeignKeyViolation:
            raise GenflowError(
                "missing_asset", "an input of this job was deleted while it was submitted; send it again"
            ) from None
        if row is None:
            raise RuntimeError("enqueue.sql always answers one row")
        return row

    async def _full(self, live: int) -> QueueFull:
        rate = await self.writer.write("drain_rate", {})
        return QueueFull(live, self._limit, retry_after_s(live - self._limit + 1, rate[0]["ended"]))

    def _hint_soon(self, payload: str) -> None:
        """The same, without waiting for it: at once, and after that no more often than every `HINT_PAUSE_S` seconds."""
        self._due.add(payload)
        if payload not in self._hints:
            self._hints[payload] = task = asyncio.create_task(self._hint_while_due(payload))
            task.add_done_callback(lambda _: self._hints.pop(payload, None))

    async def _hint_while_due(self, payload: str) -> None:
        while payload in self._due:
            self._due.discard(payload)
            await self._hint(payload)
            await asyncio.sleep(HINT_PAUSE_S)

    async def _hint(self, payload: str) -> None:
        """Tell whoever listens. Outside the job's transaction and never waited for: the poll is the truth."""
        try:
            async with self._pool.connection(timeout=1.0) as connection:
                await connection.execute("select pg_notify('genflow', %s)", [payload])
        except OUTAGE:
            pass

    async def view(self, job_id: UUID, *, tenant: int = 1, watched: bool = False) -> JobView | None:
        """The job as clients see it, or None. `watched` asks its holder to write live progress for a while."""
        rows = await self.writer.write("job_view", {"jobs": [job_id], "tenant": tenant})
        if not rows:
            return None
        if watched and rows[0]["unwatched"] and not State(rows[0]["state"]).terminal:
            await self.watches.watch([job_id])
        return view_of(rows[0])

    async def story(self, job_id: UUID, *, tenant: int = 1) -> Row | None:
        """The job's own story as job_story.sql tells it; or None.

        `waits_because` says what a waiting job lacks: a server that is able, or the one that has its prompt.
        """
        rows = await self.writer.write("job_story", {"job": job_id, "tenant": tenant, "lately_s": LATELY_S})
        if not rows:
            return None
        row, why = rows[0], None
        if State(row["state"]) in (State.QUEUED, State.WAITING):
            if row["server"] is not None:
                why = why_bound(row)
            elif row["needs"]:
                why = await self._classes.why_none(row["needs"])
        return row | {"waits_because": why}

    async def live(self, jobs: Sequence[UUID]) -> set[UUID]:
        """Those of the jobs that have not ended, whoever owns them; what is gone has."""
        return {row["id"] for row in await self.writer.write("live_of", {"jobs": list(jobs)})}

    async def page(
        self,
        *,
        limit: int,
        before: int | None = None,
        states: Sequence[State] | None = None,
        statuses: Sequence[Status] | None = None,
        labels: Mapping[str, str] | None = None,
        tenant: int = 1,
    ) -> list[Row]:
        """Up to `limit` jobs below the cursor, newest first, as job_list.sql tells them.

        Those in one of `states`, or shown as one of `statuses`, whose metadata has all of `labels`.
        """
        live = None
        if statuses is not None:
            ends = [State[status.name] for status in statuses if status.terminal]
            live = [status.value for status in statuses if not status.terminal]
            states = [*ends, *((State.WAITING, State.QUEUED, State.HELD) if live else ())]
        return await self.writer.write(
            "job_list",
            {
                "tenant": tenant,
                "limit": limit,
                "before": before,
                "states": None if states is None else [int(state) for state in states],
                "live": live,
                "labels": Jsonb(labels) if labels else None,
            },
        )

    async def workflow(self, job_id: UUID, *, tenant: int = 1) -> dict[str, Any] | None:
        """The graph as servers run it: as the client sent it, each asset's name in its place; None for an unknown job.

        An asset whose bytes are gone stands there as it was sent.
        """
        rows = await self.writer.write("job_workflow", {"job": job_id, "tenant": tenant})
        return None if not rows else await asyncio.to_thread(_resolved, job_id, rows[0])

    async def cancel(self, job_id: UUID, *, tenant: int = 1) -> bool:
        """Cancel, or ask its holder to; False for an unknown job. Idempotent; a finished job stays as it is."""
        rows = await self.writer.write("cancel", {"job": job_id, "tenant": tenant, "retention_s": self._retention_s})
        if rows and rows[0]["changed"]:
            await self._hint(f"cancel:{job_id}")
        return bool(rows)

    async def erase(self, job_id: UUID, *, tenant: int = 1) -> bool:
        """Have a job erased: as soon as it is over, for which it is canceled. False for an unknown job. Idempotent."""
        state = await self.erasure.ask(job_id, tenant=tenant)
        if state is not None and not state.terminal:
            await self.cancel(job_id, tenant=tenant)
        return state is not None

    async def assets(self, ids: Sequence[UUID], *, tenant: int | None = 1) -> dict[UUID, AssetRecord]:
        """Those of the assets that this tenant (None = any) has, by id."""
        rows = await self.writer.write("assets_by_id", {"assets": list(ids), "tenant": tenant})
        return {row["id"]: _asset_of(row) for row in rows}

    async def known_nodes(self, *, now: bool = False, anew: bool = False) -> FleetNodes | None:
        """What the fleet's servers have, as seen a moment ago, or `now`; None when nothing is known yet.

        `anew`: they are asked first, for a few seconds at most and not twice within a moment.
        """
        if anew:
            await self._classes.ask_anew(self._hint)
        return await self._classes.nodes(now=now or anew)


def _resolved(job_id: UUID, row: Row) -> dict[str, Any]:
    graph = json.loads(row["workflow"])
    names = {ref.id: ref.as_json() for ref in asset_refs(graph)}
    return substitute(graph, names | input_names(job_id, inputs_of(row["inputs"])))


def _asset_of(row: Row) -> AssetRecord:
    return AssetRecord(
        id=row["id"],
        hash=None if row["blob_hash"] is None else bytes(row["blob_hash"]),
        kind=row["kind"],
        job_id=row["job_id"],
        node_id=row["node_id"],
        name=row["name"],
        type=row["type"],
        content_type=row["content_type"],
        size=row["size"],
        tags=row["tags"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
