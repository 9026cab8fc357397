"""The OpenAPI document of this API, made of one table: what each route takes and what it may answer.

FastAPI could guess it from type hints; our routes read their bodies themselves, under bounds. The tests drive the API
by this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from genflow import __version__
from genflow.api.schemas import FLAG, HASH, ID, LABELS, SCHEMAS, TEXT, WHOLE, Schema, one_of, ref
from genflow.failures import FailureClass
from genflow.jobs import State
from genflow.queue.dead import GroupBy

Answers = dict[int, str | None]

_ALWAYS = (503,)
"""What every route that asks the database may answer."""
_MULTIPART = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body: its media type and shape."""

    schema: Schema
    kind: str = "application/json"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: the object of each good answer (None = no JSON), and the statuses of its refusals."""

    summary: str
    answers: Answers
    errors: Sequence[int] = ()
    query: dict[str, Schema] = field(default_factory=dict)
    headers: dict[str, Schema] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()
    plain: str | None = None
    """Media type of a good answer that is no JSON."""


_KEY = {"Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x20-\\x7e]+$"}}
_PAGE = {"limit": {"type": "integer", "minimum": 1, "maximum": 200}, "cursor": TEXT}
_V2_PAGE = {"limit": {"type": "integer", "minimum": 1, "maximum": 100}, "cursor": TEXT}
_SET: Schema = {"type": "object", "description": "Values by NODE.INPUT, such as 3.seed."}
_DEAD_FILTERS: dict[str, Schema] = {
    "since": TEXT, "until": TEXT, "class": one_of(*FailureClass), "code": TEXT, "node": TEXT, "server": TEXT,
    "batch": ID, "reason": TEXT, "requeued": FLAG,
}  # fmt: skip
_SUBMIT = Body(
    {
        "type": "object",
        "required": ["workflow"],
        "properties": {
            "workflow": {"type": "object", "minProperties": 1},
            "metadata": LABELS,
            "extra_data": {
                "type": "object",
                "properties": {"api_key_comfy_org": TEXT},
                "additionalProperties": False,
            },
        },
    }
)
_PORTRAIT: dict[str, Schema] = {
    "prompt": TEXT, "negative": TEXT, "seed": WHOLE, "steps": WHOLE, "metadata": LABELS, "start_by_s": WHOLE,
}  # fmt: skip
_OF_TEMPLATE = Body(
    {
        "type": "object",
        "required": ["template"],
        "properties": {
            "template": TEXT, "set": {"type": "object", "description": "Values by the parameters' names."},
            "metadata": LABELS, "start_by_s": {"type": "number", "minimum": 1, "maximum": 604_800},
            "priority": {"type": "integer", "minimum": -100, "maximum": 100},
        },
        "additionalProperties": False,
    }
)  # fmt: skip
_UPLOAD = Body(
    {
        "type": "object",
        "required": ["file", "content_type", "file_path"],
        "properties": {
            "content_type": TEXT, "file_path": TEXT, "expected_hash": HASH,
            "tags": {"type": "array", "items": TEXT},
            "expires_in": {"type": "integer", "minimum": 60, "maximum": 604_800},
            "file": {"type": "string", "format": "binary"},
        },
    },
    _MULTIPART,
)  # fmt: skip


def _optional(**properties: Schema) -> Body:
    return Body({"type": "object", "properties": properties, "additionalProperties": False}, required=False)


ROUTES: dict[str, Route] = {
    # The Comfy API v2
    "POST /api/v2/jobs": Route(
        "Submit a workflow in ComfyUI's API format; 201 means that the job is recorded for good.",
        {201: "Job"}, (400, 413, 415, 422, 429), headers=_KEY, bodies=(_SUBMIT,),
    ),
    "GET /api/v2/jobs": Route(
        "Jobs, newest first. `metadata[KEY]=VALUE`, up to three times, keeps those that have all of these labels.",
        {200: "JobList"}, (400,), query=_V2_PAGE | {"status": TEXT},
    ),
    "GET /api/v2/jobs/{job_id}": Route("The job as it is now.", {200: "Job"}, (404,)),
    "GET /api/v2/jobs/{job_id}/workflow": Route("The graph that it runs.", {200: "Workflow"}, (404,)),
    "GET /api/v2/jobs/{job_id}/events": Route(
        "The job as it goes on: server-sent events `status`, `progress`, `preview`, `output`.",
        {200: None}, (404, 429), plain="text/event-stream",
    ),
    "POST /api/v2/jobs/{job_id}/cancel": Route("Ask for the job's end. Idempotent.", {200: "Job"}, (404,)),
    "POST /api/v2/assets": Route(
        "Upload a file; 200 where its bytes were there already.",
        {200: "Asset", 201: "Asset"}, (400, 409, 413, 415, 422), headers=_KEY, bodies=(_UPLOAD,),
    ),
    "POST /api/v2/assets/from-hash": Route(
        "A new asset over bytes that are there already.",
        {200: "Asset", 201: "Asset"}, (400, 404, 413, 415, 422),
        bodies=(
            Body(
                {
                    "type": "object",
                    "required": ["hash"],
                    "properties": {
                        "hash": HASH, "file_path": TEXT, "tags": {"type": "array", "items": TEXT},
                        "expires_in": {"type": "integer", "minimum": 60, "maximum": 604_800},
                    },
                }
            ),
        ),
    ),
    "HEAD /api/v2/assets/by-hash/{hash}": Route("Whether you have a file of this hash.", {200: None, 404: None}),
    "GET /api/v2/assets/{asset_id}": Route("The asset's record, with a fresh link.", {200: "Asset"}, (404,)),
    "DELETE /api/v2/assets/{asset_id}": Route("Delete the record.", {204: None}, (404, 409)),
    "GET /api/v2/assets/{asset_id}/content": Route(
        "The bytes, whole, a range of them, or from where they lie.",
        {200: None, 206: None, 302: None}, (400, 404, 416, 422),
        query={"w": {"type": "integer", "minimum": 1}, "format": one_of("jpeg", "png", "webp")},
        headers={"Range": TEXT}, plain="*/*",
    ),
    "HEAD /api/v2/assets/{asset_id}/content": Route(
        "What a GET would say of the bytes.",
        {status: None for status in (200, 206, 302, 400, 404, 416, 422)}, headers={"Range": TEXT},
    ),
    # genflow's own
    "POST /genflow/v1/portraits": Route(
        "A face photo and a prompt in, a job out.",
        {201: "Job"}, (400, 413, 415, 422, 429), headers=_KEY | {"Prefer": TEXT},
        bodies=(
            Body(
                {
                    "type": "object",
                    "required": ["photo", "prompt"],
                    "properties": _PORTRAIT | {"photo": {"type": "string", "format": "binary"}},
                },
                _MULTIPART,
            ),
            Body(
                {
                    "type": "object",
                    "required": ["prompt"],
                    "anyOf": [{"required": ["photo_asset"]}, {"required": ["photo_url"]}],
                    "properties": _PORTRAIT | {"photo_asset": ID, "photo_url": TEXT},
                }
            ),
        ),
    ),
    "GET /genflow/v1/jobs": Route(
        "Jobs, newest first, as operators see them.",
        {200: "StoryList"}, (400,), query=_PAGE | {"state": one_of(*(each.name.lower() for each in State))},
    ),
    "POST /genflow/v1/jobs": Route(
        "A job of a template: its parameters by name.",
        {201: "Job"}, (400, 413, 415, 422, 429), headers=_KEY, bodies=(_OF_TEMPLATE,),
    ),
    "GET /genflow/v1/jobs/{job_id}": Route(
        "What was tried, where, and what ran; with `wait`, once the job has ended or so many seconds are over.",
        {200: "Story"}, (400, 404), query={"wait": {"type": "integer", "minimum": 0, "maximum": 60}},
    ),
    "GET /genflow/v1/templates": Route("The templates, with their parameters.", {200: "Templates"}),
    "GET /genflow/v1/templates/{name}": Route("One template.", {200: "Template"}, (404,)),
    "POST /genflow/v1/assets": Route(
        "Fetch a file by its URL and keep it.",
        {201: "Asset"}, (400, 413, 415, 422),
        bodies=(
            Body(
                {
                    "type": "object",
                    "required": ["url"],
                    "properties": {"url": TEXT, "file_path": TEXT},
                    "additionalProperties": False,
                }
            ),
        ),
    ),
    "DELETE /genflow/v1/jobs/{job_id}": Route(
        "Erase it: photo, pictures, workflow and the copies on servers. 202 says what is left to do.",
        {200: "Erased", 202: "Erased"}, (404,),
    ),
    "GET /genflow/v1/dead-letters": Route(
        "Jobs that failed for good, the latest first; with `group`, how many there are of each.",
        {200: "DeadLetters"}, (400,), query=_DEAD_FILTERS | _PAGE | {"group": one_of(*GroupBy)},
    ),
    "POST /genflow/v1/dead-letters/requeue": Route(
        "Requeue those that match, at most a hundred a request.",
        {200: "RequeuedAll"}, (400, 413, 415, 429),
        bodies=(_optional(**_DEAD_FILTERS, set=_SET, again=FLAG, dry_run=FLAG, all=FLAG, cursor=TEXT),),
    ),
    "POST /genflow/v1/dead-letters/purge": Route(
        "Delete those that match, at most a hundred a request.",
        {200: "Purged"}, (400, 413, 415), bodies=(_optional(**_DEAD_FILTERS, dry_run=FLAG, all=FLAG, cursor=TEXT),),
    ),
    "GET /genflow/v1/dead-letters/{given_id}": Route("All that is known of one.", {200: "WholeDeadLetter"}, (404, 409)),
    "POST /genflow/v1/dead-letters/{given_id}/requeue": Route(
        "A new job of this dead letter.",
        {200: "Requeued", 201: "Requeued"}, (400, 404, 409, 413, 415, 422, 429),
        bodies=(_optional(set=_SET, again=FLAG, dry_run=FLAG),),
    ),
    "DELETE /genflow/v1/dead-letters/{given_id}": Route("Delete one.", {200: "Purged"}, (404, 409)),
    "POST /genflow/v1/batches": Route(
        "A jobs file, a JSON object a line: all of its rows, or none.",
        {201: "Batch"}, (400, 409, 413, 415, 422, 429), query={"name": TEXT, "retry_failed": FLAG},
        bodies=(Body(TEXT, "text/plain"),),
    ),
    "GET /genflow/v1/batches": Route("Batches, newest first.", {200: "BatchList"}, (400,), query=_PAGE),
    "GET /genflow/v1/batches/{batch_id}": Route("A batch, its rows counted.", {200: "Batch"}, (404,)),
    "GET /genflow/v1/batches/{batch_id}/rows": Route("Its rows.", {200: "BatchRows"}, (400, 404), query=_PAGE),
    "POST /genflow/v1/batches/{batch_id}/pause": Route("Begin nothing more of it.", {200: "Batch"}, (404,)),
    "POST /genflow/v1/batches/{batch_id}/resume": Route("Go on with it.", {200: "Batch"}, (404,)),
    "GET /genflow/v1/servers": Route("The servers.", {200: "Servers"}, (400,), query={"all": FLAG}),
    "GET /genflow/v1/workers": Route("The workers.", {200: "Workers"}),
    "GET /genflow/v1/status": Route("How things stand.", {200: "Status"}),
    "POST /genflow/v1/servers/{name}/drain": Route("No new job goes there.", {200: "Server"}, (404, 409)),
    "POST /genflow/v1/servers/{name}/resume": Route("End a drain or a quarantine.", {200: "Server"}, (404, 409)),
    "POST /genflow/v1/servers/{name}/forget": Route(
        "It is gone for good.", {200: "Server"}, (400, 404, 409), query={"yes": FLAG}
    ),
    "GET /api/v2/health": Route("The process lives, in the contract's words.", {200: "Health"}),
    "GET /healthz": Route("The process lives.", {200: "Health"}),
    "GET /metrics": Route("Counts of this process and the state of the queue.", {200: None}, plain="text/plain"),
    "GET /readyz": Route("Everything that the API needs is there.", {200: "Health"}),
}  # fmt: skip
"""Every route by method and path."""


def describe(app: FastAPI, prefix: str) -> None:
    """Have `app`, mounted at `prefix`, answer /openapi.json and /docs with this document."""
    app.openapi = lambda: document(prefix)  # type: ignore[method-assign]


def document(prefix: str = "") -> dict[str, Any]:
    """The document; `prefix` is where the API is mounted."""
    paths: dict[str, dict[str, Any]] = {}
    for name, route in ROUTES.items():
        method, _, path = name.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "genflow",
            "version": __version__,
            "description": "The durable production service in front of ComfyUI.",
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, path: str, route: Route) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    given = [_parameter("path", name, TEXT, required=True) for name in names]
    given += [_parameter("query", name, schema) for name, schema in route.query.items()]
    given += [_parameter("header", name, schema) for name, schema in route.headers.items()]
    answers = {str(status): _good(route, schema) for status, schema in route.answers.items()}
    refused = {"description": "refused", "content": {"application/json": {"schema": ref("Error")}}}
    keyed = () if path in OPEN else (401, 403)
    answers |= {str(status): refused for status in (*keyed, *route.errors, *_ALWAYS) if str(status) not in answers}
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}_{path.strip('/').replace('/', '_').replace('{', '').replace('}', '')}",
        "tags": [_room(path)],
        "summary": route.summary,
        "parameters": given,
        "responses": answers,
    }
    if path in OPEN:
        operation["security"] = []
    if route.bodies:
        operation["requestBody"] = {
            "required": all(body.required for body in route.bodies),
            "content": {body.kind: {"schema": body.schema} for body in route.bodies},
        }
    return operation


OPEN = ("/healthz", "/readyz", "/api/v2/health")
"""Paths that need no key."""


def _room(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    return parts[2] if len(parts) > 2 else "health"


def _parameter(place: str, name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"in": place, "name": name, "required": required, "schema": schema}


def _good(route: Route, schema: str | None) -> dict[str, Any]:
    if schema is not None:
        return {"description": "done", "content": {"application/json": {"schema": ref(schema)}}}
    if route.plain is not None:
        return {"description": "done", "content": {route.plain: {}}}
    return {"description": "done"}
