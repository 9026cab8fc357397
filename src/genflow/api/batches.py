"""`/genflow/v1/batches`: jobs files as one thing: sent, counted, paused, told row by row."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api.bodies import bounded
from genflow.api.context import Context, flag_of, tenant_of, uuid_of
from genflow.api.errors import invalid_request, not_found
from genflow.api.pages import cursor_of, moment_of_place, moment_text, page_limit, place_of
from genflow.api.rows import jobs_of
from genflow.api.shapes import time
from genflow.errors import clean_text
from genflow.intake.batch import enqueue_file
from genflow.intake.jobs_file import read_jsonl
from genflow.jobs import State, shown_status
from genflow.queue.writer import Row

NAME_CHARACTERS = 200
_LIST, _ROWS = "batches", "rows"
_INSTANT = re.compile(r"[0-9]{1,17}")
_LINE = re.compile(r"[0-9]{1,9}")
_COUNTS = ("rows", "queued", "running", "succeeded", "failed", "canceled", "expired", "gone")
_STATES = {1: "running", 2: "paused"}


def routes(context: Context) -> APIRouter:
    """The routes of batches."""
    router = APIRouter(prefix="/genflow/v1/batches", tags=["batches"])
    batches = context.queue.batches

    async def shown(request: Request, batch: UUID) -> JSONResponse:
        row = await batches.counts(batch, tenant=tenant_of(request))
        if row is None:
            raise not_found("batch", str(batch))
        return JSONResponse(_batch(row))

    @router.post("", status_code=201)
    async def create(request: Request) -> JSONResponse:
        """Accept a jobs file, a JSON object a line: all of its rows, or none. The same file again is the same batch."""
        query = request.query_params
        name = _name(query.get("name"))
        chunks = [chunk async for chunk in bounded(request, context.settings.max_batch_bytes)]
        text = await asyncio.to_thread(_text, b"".join(chunks))
        rows = await asyncio.to_thread(read_jsonl, text, name)
        jobs = await jobs_of(context.maker, rows, name, tenant=tenant_of(request))
        batch = await enqueue_file(
            context.queue,
            name,
            jobs,
            policy=context.settings.policy(),
            max_workflow_bytes=context.settings.max_workflow_bytes,
            lenient=context.settings.lenient,
            retry_failed=flag_of("retry_failed", query.get("retry_failed")),
            tenant=tenant_of(request),
        )
        made = await shown(request, batch)
        made.status_code = 201
        return made

    @router.get("")
    async def listing(request: Request) -> JSONResponse:
        """Batches, newest first; `next_cursor` leads to the older ones and is null at the end."""
        query = request.query_params
        limit = page_limit(query.get("limit"))
        place = place_of(_LIST, query.get("cursor"), _INSTANT)
        rows = await batches.page(
            limit=limit + 1,
            before=None if place is None else moment_of_place(place[0]),
            tenant=tenant_of(request),
        )
        more = cursor_of(_LIST, moment_text(rows[limit - 1]["created_at"])) if len(rows) > limit else None
        listed = [
            {
                "id": str(row["id"]), "name": row["name"], "state": _STATES[row["state"]],
                "created_at": time(row["created_at"]),
            }
            for row in rows[:limit]
        ]  # fmt: skip
        return JSONResponse({"batches": listed, "next_cursor": more})

    @router.get("/{batch_id}")
    async def look(request: Request, batch_id: str) -> JSONResponse:
        """The batch with its rows counted, its rate, and the seconds that it still needs at that rate."""
        return await shown(request, uuid_of("batch", batch_id))

    @router.get("/{batch_id}/rows")
    async def rows(request: Request, batch_id: str) -> JSONResponse:
        """Its rows in the file's order as they stand now; `next_cursor` leads on and is null at the end."""
        query = request.query_params
        batch, limit = uuid_of("batch", batch_id), page_limit(query.get("limit"))
        if not await batches.exists(batch, tenant=tenant_of(request)):
            raise not_found("batch", batch_id)
        place = place_of(_ROWS, query.get("cursor"), _LINE)
        after = 0 if place is None else int(place[0])
        found = await batches.rows(batch, after=after, limit=limit, tenant=tenant_of(request))
        more = cursor_of(_ROWS, found[-1]["row_no"]) if len(found) == limit else None
        return JSONResponse({"rows": [row_shape(row) for row in found], "next_cursor": more})

    @router.post("/{batch_id}/pause")
    async def pause(request: Request, batch_id: str) -> JSONResponse:
        """Nothing more of it is begun; what runs goes on. Idempotent."""
        await batches.pause(uuid_of("batch", batch_id), tenant=tenant_of(request))
        return await shown(request, UUID(batch_id))

    @router.post("/{batch_id}/resume")
    async def resume(request: Request, batch_id: str) -> JSONResponse:
        """It goes on where it was paused. Idempotent."""
        await batches.resume(uuid_of("batch", batch_id), tenant=tenant_of(request))
        return await shown(request, UUID(batch_id))

    return router


def _batch(row: Row) -> dict[str, Any]:
    rate = row["ended"] / row["window"] if row["window"] > 0 else 0.0
    left = row["queued"] + row["running"]
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "state": _STATES[row["state"]],
        "created_at": time(row["created_at"]),
        **{name: row[name] for name in _COUNTS},
        "rows_per_minute": round(60.0 * rate, 2),
        "seconds_left": None if rate == 0 else round(left / rate, 1),
    }


def row_shape(row: Row) -> dict[str, Any]:
    """One row as it stands: its job's newest attempt, its files with both hashes, and its times in seconds."""
    status = "gone"
    if row["state"] is not None:
        status = shown_status(
            State(row["state"]),
            cancel_asked=row["cancel_at"] is not None,
            executing=row["executing_at"] is not None,
        ).value
    error = row["error"] or {}
    return {
        "line": row["row_no"],
        "id": str(row["row_job"]),
        "job_id": None if row["id"] is None else str(row["id"]),
        "set": row["set"],
        "status": status,
        "server": row["server"],
        "attempts": row["attempts"],
        "queued_s": row["queued_s"],
        "job_s": row["job_s"],
        "attempt_s": row["attempt_s"],
        "gpu_ms": row["gpu_ms"],
        "reason": error.get("brief") or error.get("message"),
        "code": error.get("code"),
        "files": row["files"],
    }


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid_request(f"The jobs file is not UTF-8 (byte {error.start}).", field="body") from None


def _name(given: str | None) -> str:
    if given is None:
        return "batch"
    if not 1 <= len(given) <= NAME_CHARACTERS or not given.isprintable():
        message = f"name must be 1 to {NAME_CHARACTERS} printable characters."
        raise invalid_request(message, field="name", got=clean_text(given, 80))
    return given
