"""`/api/v2/jobs`: submit any workflow, list the jobs, look at one, cancel it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api import shapes
from genflow.api.bodies import json_fields
from genflow.api.context import Context, idempotency_key, tenant_of, uuid_of
from genflow.api.errors import not_found
from genflow.api.listing import page_of_jobs
from genflow.errors import GenflowError, clean_text
from genflow.intake.admission import LABELS_BYTES, body_hash, check_assets, check_runnable, check_size, graph_of, labels
from genflow.queue.records import JobView, KeyInUse, NewJob

REPLAYED = "Idempotency-Replayed"
"""Header of a 201 whose job an earlier request made."""

_SMALL_BYTES = 64 * 1024
_RESERVED = ("webhook_url", "inputs")
_EXTRA_DATA = "api_key_comfy_org"


def routes(context: Context) -> APIRouter:
    """The routes of jobs."""
    router = APIRouter(prefix="/api/v2/jobs", tags=["jobs"])
    sealer = context.settings.sealer

    @router.post("", status_code=201)
    async def submit(request: Request) -> JSONResponse:
        """Accept an API-format workflow; 201 means that the job is recorded for good."""
        key = idempotency_key(request)
        limit = context.settings.max_workflow_bytes
        fields = await json_fields(request, limit + LABELS_BYTES, workflow=True)
        workflow, text = fields.get("workflow", (None, ""))
        _check_closed(fields, text, limit)
        metadata = labels(fields.get("metadata", (None, ""))[0])
        extra_data = _extra_data(fields.get("extra_data", (None, ""))[0])
        if len(text) > _SMALL_BYTES:
            graph, refs = await asyncio.to_thread(graph_of, workflow)
        else:
            graph, refs = graph_of(workflow)
        hash = body_hash(text, metadata)
        if again := await replayed(context, request, key, hash):
            return again
        settings = context.settings
        await check_runnable(context.queue, graph, await context.queue.known_nodes(), lenient=settings.lenient)
        await check_assets(context.queue, refs, tenant=tenant_of(request))
        job_id = uuid4()
        job = NewJob(
            id=job_id,
            workflow=text,
            body_hash=hash,
            policy=settings.policy(),
            assets=tuple(ref.id for ref in refs),
            metadata=metadata,
            sealed=None if extra_data is None else sealer.seal(job_id, extra_data),
            idempotency_key=key,
            tenant=tenant_of(request),
        )
        return await accepted(context, request, job)

    @router.get("")
    async def listing(request: Request) -> JSONResponse:
        """Jobs, newest first, a page at a time; `status` and labels narrow the list."""
        return JSONResponse(await page_of_jobs(context, request))

    @router.get("/{job_id}")
    async def look(request: Request, job_id: str) -> JSONResponse:
        """The job as it is now, with every output committed so far."""
        view = await view_of(context, request, uuid_of("job", job_id), watched=True)
        return JSONResponse(shapes.job(view, context.links(request)))

    @router.get("/{job_id}/workflow")
    async def workflow(request: Request, job_id: str) -> JSONResponse:
        """The graph as servers run it, with the names of the job's files in place of their asset references."""
        graph = await context.queue.workflow(uuid_of("job", job_id), tenant=tenant_of(request))
        if graph is None:
            raise not_found("job", job_id)
        return JSONResponse({"workflow": graph, "format": "api"})

    @router.post("/{job_id}/cancel")
    async def cancel(request: Request, job_id: str) -> JSONResponse:
        """Ask for the job's end. Idempotent; a finished job stays as it is."""
        wanted = uuid_of("job", job_id)
        if not await context.queue.cancel(wanted, tenant=tenant_of(request)):
            raise not_found("job", job_id)
        return JSONResponse(shapes.job(await view_of(context, request, wanted), context.links(request)))

    return router


async def view_of(context: Context, request: Request, job_id: UUID, *, watched: bool = False) -> JobView:
    """A job's view. GenflowError 404 `not_found` where there is none, or it is past its time."""
    view = await context.queue.view(job_id, tenant=tenant_of(request), watched=watched)
    if view is None:
        raise not_found("job", str(job_id))
    return view


async def accepted(context: Context, request: Request, job: NewJob) -> JSONResponse:
    """Commit a job and answer with it; where its key made a job already, with that one if the settings say so.

    Raises what `Queue.enqueue` raises.
    """
    try:
        view = await context.queue.enqueue(job)
    except KeyInUse:
        again = await replayed(context, request, job.idempotency_key, job.body_hash)
        if again is None:
            raise
        return again
    return created(context, request, view)


async def replayed(context: Context, request: Request, key: str | None, body_hash: bytes) -> JSONResponse | None:
    """With `idempotency = "replay"`, the job that this very request has made before, as it is now; else None."""
    if key is None or context.settings.idempotency != "replay":
        return None
    job_id = await context.queue.made_by(key, body_hash, tenant=tenant_of(request))
    view = None if job_id is None else await context.queue.view(job_id, tenant=tenant_of(request))
    return None if view is None else created(context, request, view, {REPLAYED: "true"})


def created(context: Context, request: Request, view: JobView, headers: dict[str, str] | None = None) -> JSONResponse:
    """The 201 of an accepted job."""
    shown = shapes.job(view, context.links(request))
    return JSONResponse(shown, status_code=201, headers={"Location": shown["urls"]["self"], **(headers or {})})


def _check_closed(fields: Any, text: str, limit: int) -> None:
    for name in _RESERVED:
        if name in fields:
            details = {"field": name, "reason": "reserved"}
            raise GenflowError("invalid_workflow", f"{name} is reserved and not supported yet.", details=details)
    if "workflow" not in fields:
        hint = " (ComfyUI's own “prompt” goes there)" if "prompt" in fields else ""
        details = {"field": "workflow", "reason": "missing"}
        raise GenflowError("invalid_workflow", f"The body must have a workflow{hint}.", details=details)
    check_size(text, limit)


def _extra_data(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    details = {"field": "extra_data", "reason": "not_allowed", "limit": [_EXTRA_DATA]}
    if not isinstance(value, dict):
        message = f"extra_data must be an object with {_EXTRA_DATA} or nothing."
        raise GenflowError("invalid_workflow", message, details=details)
    unknown = [key for key in value if key != _EXTRA_DATA]
    if unknown:
        message = f"extra_data takes only {_EXTRA_DATA}, not {clean_text(unknown[0], 80)}."
        raise GenflowError("invalid_workflow", message, details=details)
    if not isinstance(value.get(_EXTRA_DATA, ""), str):
        raise GenflowError("invalid_workflow", f"extra_data.{_EXTRA_DATA} must be a text.", details=details)
    return value or None
