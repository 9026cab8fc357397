"""`POST /genflow/v1/portraits`: a face photo and a prompt in, a job out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import UploadFile

from genflow.api.bodies import (
    FORM_FIELDS_BYTES,
    content_type,
    form_fields,
    json_fields,
    multipart_form,
    object_field,
    unsupported_media_type,
)
from genflow.api.context import Context, idempotency_key, tenant_of
from genflow.api.jobs import REPLAYED, accepted, created, view_of
from genflow.api.making import Files
from genflow.api.waiting import LONGEST_WAIT_S
from genflow.errors import clean_text
from genflow.intake.admission import body_hash, check_runnable, labels
from genflow.outside import refused_url
from genflow.queue.records import NewJob
from genflow.templates import Parameters, invalid_parameter, portrait_workflow, read_parameters
from genflow.templates.parameters import Number
from genflow.workflow import AssetRef, missing_asset

START_BY = Number(1, 7 * 86_400)
"""Seconds until a job must have begun."""

_NAMING = {"photo_asset": "the id of an asset", "photo_url": "a URL"}
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


def routes(context: Context) -> APIRouter:
    """The route of portraits."""
    router = APIRouter(prefix="/genflow/v1/portraits", tags=["portraits"])

    @router.post("", status_code=201)
    async def portrait(request: Request) -> JSONResponse:
        """Accept a portrait; 201 means that the job is recorded for good."""
        key = idempotency_key(request)
        wait_s = preferred_wait_s(request.headers.getlist("prefer"))
        async with AsyncExitStack() as stack:
            fields, upload, form = await _fields(context, request, stack)
            parameters = read_parameters(
                fields,
                context.settings.portrait.loras,
                form=form,
                others=("photo", "photo_asset", "photo_url", "start_by_s", "metadata"),
            )
            start_by_s = _start_by(fields, form=form)
            metadata = labels(_metadata(fields, form=form))
            source = _photo_source(fields, upload)
            # Whatever can be refused without looking at the photo has been by now.
            graph = portrait_workflow(parameters, AssetRef(uuid4()), context.settings.portrait)
            await check_runnable(
                context.queue, graph, await context.queue.known_nodes(), lenient=context.settings.lenient
            )
            photo = await _photo(context, source, tenant_of(request))
        job = NewJob(
            id=uuid4(),
            workflow=json.dumps(portrait_workflow(parameters, photo, context.settings.portrait)),
            body_hash=body_hash(_asked(parameters, fields), photo.hash, metadata, start_by_s),
            policy=context.settings.policy(),
            assets=(photo.id,),
            params=parameters.as_json(),
            metadata=metadata,
            idempotency_key=key,
            start_by_s=start_by_s,
            tenant=tenant_of(request),
        )
        answer = await accepted(context, request, job)
        if wait_s is None or REPLAYED in answer.headers:
            return answer
        headers = {"Preference-Applied": f"wait={wait_s}"}
        await context.ends.wait(job.id, wait_s)
        return created(context, request, await view_of(context, request, job.id), headers)

    return router


def _asked(parameters: Parameters, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as the request gave them: a seed that was drawn for it tells it from no other."""
    return parameters.as_json() | ({"seed": None} if fields.get("seed") in (None, "") else {})


def preferred_wait_s(headers: list[str]) -> int | None:
    """Whole seconds that the client would like to wait (RFC 7240), at most `LONGEST_WAIT_S`; None = not at all."""
    match = _WAIT.search(",".join(headers))
    return None if match is None else min(LONGEST_WAIT_S, int(match.group(1)))


async def _fields(
    context: Context, request: Request, stack: AsyncExitStack
) -> tuple[Mapping[str, Any], UploadFile | None, bool]:
    """The request's fields, its file, and whether they are a form's texts."""
    kind = content_type(request)
    if kind == "multipart/form-data":
        form = await multipart_form(request, context.settings.max_photo_bytes)
        stack.push_async_callback(form.close)
        texts, upload = form_fields(form)
        return texts, upload, True
    if kind in ("", "application/json"):
        exact = await json_fields(request, FORM_FIELDS_BYTES)
        return {name: value for name, (value, _) in exact.items()}, None, False
    raise unsupported_media_type(kind, "multipart/form-data or application/json")


def _start_by(fields: Mapping[str, Any], *, form: bool) -> float | None:
    value = fields.get("start_by_s")
    return None if value in (None, "") else START_BY.read("start_by_s", value, form=form)


def _metadata(fields: Mapping[str, Any], *, form: bool) -> Any:
    value = fields.get("metadata")
    if form and isinstance(value, str):
        return object_field("metadata", value) if value else None
    return value


def _photo_source(fields: Mapping[str, Any], upload: UploadFile | None) -> UploadFile | tuple[str, str]:
    """The file, or the field that names one with its value; exactly one of them."""
    if fields.get("photo") not in (None, ""):
        message = (
            "must be sent as a file in multipart/form-data; an asset's id goes into photo_asset, a URL into photo_url"
        )
        raise invalid_parameter("photo", "not_a_file", message)
    given = [(name, fields[name]) for name in _NAMING if fields.get(name) not in (None, "")]
    if upload is not None and given:
        raise invalid_parameter(given[0][0], "two_photos", "is not possible beside a file in photo")
    if len(given) > 1:
        raise invalid_parameter("photo_url", "two_photos", "is not possible beside photo_asset")
    if upload is not None:
        return upload
    if not given:
        message = "is required: a file in photo, an asset's id in photo_asset, or a URL in photo_url"
        raise invalid_parameter("photo", "missing", message)
    name, value = given[0]
    if not isinstance(value, str):
        raise invalid_parameter(name, "not_a_text", f"must be {_NAMING[name]}")
    if (name == "photo_url") != ("://" in value):
        if name == "photo_url":
            raise refused_url("malformed", "must begin with http:// or https://", got=value, field=name)
        raise missing_asset(name, "unknown", f"there is no asset {clean_text(value, 80)}", got=clean_text(value, 80))
    return name, value


async def _photo(context: Context, source: UploadFile | tuple[str, str], tenant: int) -> AssetRef:
    """The asset of the photo that the server gets: a file, or what the field of `source` names by its value."""
    if isinstance(source, UploadFile):
        return await context.maker.clean(source.file, tenant)
    name, given = source
    files = Files(tenant)
    return await context.maker.ready(await context.maker.source(given, files, name), files, "photo", name)
