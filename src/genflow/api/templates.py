"""`GET /genflow/v1/templates` and `POST /genflow/v1/jobs`: what can be made by parameters, and a job of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api.bodies import FORM_FIELDS_BYTES, json_fields
from genflow.api.context import Context, idempotency_key, tenant_of
from genflow.api.jobs import accepted
from genflow.api.making import Files
from genflow.api.portraits import START_BY
from genflow.intake.admission import body_hash, check_size, labels
from genflow.intake.jobs_file import PRIORITIES
from genflow.queue.records import NewJob
from genflow.templates import invalid_parameter, template_of
from genflow.templates.parameters import Whole, refuse_unknown
from genflow.templates.template import as_json

_FIELDS = ("template", "set", "metadata", "start_by_s", "priority")
_PRIORITY = Whole(PRIORITIES[0], PRIORITIES[-1])


def routes(context: Context) -> APIRouter:
    """The routes of templates."""
    router = APIRouter(prefix="/genflow/v1", tags=["templates"])
    maker = context.maker

    @router.get("/templates")
    async def listing() -> JSONResponse:
        """Every template with its parameters, their kinds and bounds."""
        return JSONResponse({"templates": [as_json(each) for each in maker.shelf.values()]})

    @router.get("/templates/{name}")
    async def look(name: str) -> JSONResponse:
        """One template."""
        return JSONResponse(as_json(template_of(maker.shelf, name, status=404)))

    @router.post("/jobs", status_code=201)
    async def submit(request: Request) -> JSONResponse:
        """Accept a job of a template; 201 means that it is recorded for good."""
        key, tenant = idempotency_key(request), tenant_of(request)
        exact = await json_fields(request, FORM_FIELDS_BYTES)
        fields = {name: value for name, (value, _) in exact.items() if value is not None}
        refuse_unknown(fields, _FIELDS)
        template = template_of(maker.shelf, fields.get("template"))
        metadata = labels(fields.get("metadata"))
        start_by_s = START_BY.read("start_by_s", fields["start_by_s"], form=False) if "start_by_s" in fields else None
        priority = _PRIORITY.read("priority", fields.get("priority", 0), form=False)
        made = await maker.make(template, _values(fields.get("set", {})), Files(tenant))
        check_size(made.workflow, context.settings.max_workflow_bytes)
        job = NewJob(
            id=uuid4(),
            workflow=made.workflow,
            body_hash=body_hash(made.body, metadata, start_by_s),
            policy=context.settings.policy(),
            assets=made.assets,
            params=made.params,
            metadata=metadata,
            idempotency_key=key,
            start_by_s=start_by_s,
            priority=priority,
            tenant=tenant,
        )
        return await accepted(context, request, job)

    return router


def _values(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise invalid_parameter("set", "not_an_object", 'must be an object such as {"prompt": "a lighthouse"}')
    return given
