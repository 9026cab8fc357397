"""`POST /genflow/v1/portraits`: a face photo and a prompt in, a job out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import UploadFile

from genflow.api import photo as photos
from genflow.api.assets import asset_of
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
from genflow.errors import GenflowError, clean_text
from genflow.intake.admission import body_hash, check_runnable, labels
from genflow.protocol import boottime
from genflow.queue.records import AssetRecord, NewJob
from genflow.templates import Parameters, invalid_parameter, portrait_workflow, read_parameters
from genflow.templates.parameters import Number
from genflow.workflow import AssetRef, missing_asset

LONGEST_WAIT_S = 60
"""Most seconds that `Prefer: wait` holds an answer back."""

_START_BY = Number(1, 7 * 86_400)
_LOOK_S = 0.25
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)
_PHOTO_TYPES = ("image/jpeg", "image/png", "image/webp")


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
                others=("photo", "photo_asset", "start_by_s", "metadata"),
            )
            start_by_s = _start_by(fields, form=form)
            metadata = labels(_metadata(fields, form=form))
            source = _photo_source(fields, upload)
            # Whatever can be refused without looking at the photo has been by now.
            await check_runnable(
                context.queue,
                _workflow(context, parameters, uuid4()),
                await context.queue.known_nodes(),
                lenient=context.settings.lenient,
            )
            if isinstance(source, str):
                asset = await _known_photo(context, request, source)
                asset_id, hash = asset.id, asset.hash or b""
            else:
                asset_id, hash = await _new_photo(context, source, tenant_of(request))
        job = NewJob(
            id=uuid4(),
            workflow=json.dumps(_workflow(context, parameters, asset_id, hash)),
            body_hash=body_hash(_asked(parameters, fields), hash.hex(), metadata, start_by_s),
            policy=context.settings.policy(),
            assets=(asset_id,),
            params=parameters.as_json(),
            metadata=metadata,
            idempotency_key=key,
            start_by_s=start_by_s,
            tenant=tenant_of(request),
        )
        answer = await accepted(context, request, job)
        if wait_s is None or REPLAYED in answer.headers:
            return answer
        await _wait_for_end(context, job, wait_s)
        headers = {"Preference-Applied": f"wait={wait_s}"}
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
    return None if value in (None, "") else _START_BY.read("start_by_s", value, form=form)


def _metadata(fields: Mapping[str, Any], *, form: bool) -> Any:
    value = fields.get("metadata")
    if form and isinstance(value, str):
        return object_field("metadata", value) if value else None
    return value


def _photo_source(fields: Mapping[str, Any], upload: UploadFile | None) -> UploadFile | str:
    """The file, or the id of the asset, that holds the face; exactly one of the two."""
    if fields.get("photo") not in (None, ""):
        message = "must be sent as a file in multipart/form-data; an asset's id goes into photo_asset"
        raise invalid_parameter("photo", "not_a_file", message)
    given = fields.get("photo_asset")
    if given in (None, ""):
        if upload is None:
            raise invalid_parameter("photo", "missing", "is required: a file in photo, or an asset's id in photo_asset")
        return upload
    if upload is not None:
        raise invalid_parameter("photo_asset", "two_photos", "is not possible beside a file in photo")
    if not isinstance(given, str):
        raise invalid_parameter("photo_asset", "not_a_text", "must be the id of an asset")
    return given


async def _known_photo(context: Context, request: Request, given: str) -> AssetRecord:
    try:
        asset = await asset_of(context, request, given)
    except GenflowError as error:
        if error.code != "not_found":
            raise
        shown = clean_text(given, 80)
        raise missing_asset("photo_asset", "unknown", f"there is no asset {shown}", got=shown) from None
    if asset.hash is None:
        raise missing_asset("photo_asset", "unknown", f"there is no asset {asset.id}", got=str(asset.id))
    if asset.content_type not in _PHOTO_TYPES:
        raise photos.unsupported(f"an asset of the type {asset.content_type}", field="photo_asset")
    return asset


async def _new_photo(context: Context, upload: UploadFile, tenant: int) -> tuple[UUID, bytes]:
    """The asset and the hash of a photo, cleaned and in the store."""
    settings = context.settings
    limits = photos.Limits(settings.max_photo_bytes, settings.max_photo_pixels, settings.min_photo_side)
    async with context.photo_turns:
        photo = await asyncio.to_thread(photos.clean_photo, upload.file, limits)
    blob = await context.store.put(_one_chunk(photo.data))
    asset_id = await context.queue.files.add(
        blob,
        name="photo.jpg",
        type="image",
        content_type=photos.CONTENT_TYPE,
        tenant=tenant,
    )
    return asset_id, blob.hash


async def _one_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _workflow(context: Context, parameters: Parameters, asset_id: UUID, hash: bytes | None = None) -> dict[str, Any]:
    photo = AssetRef(asset_id, None if hash is None else f"blake3:{hash.hex()}")
    return portrait_workflow(parameters, photo, context.settings.portrait)


async def _wait_for_end(context: Context, job: NewJob, wait_s: float) -> None:
    until = boottime() + wait_s
    while not await context.queue.ended(job.id, tenant=job.tenant):
        left = until - boottime()
        if left <= 0:
            return
        await asyncio.sleep(min(_LOOK_S, left))
