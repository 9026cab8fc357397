"""`/api/v2/assets`: a file's record and its bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import cast
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from genflow.api import shapes
from genflow.api import thumbnail as thumbnails
from genflow.api.content import redirected
from genflow.api.context import Context, tenant_of, uuid_of
from genflow.api.errors import invalid_request, not_found
from genflow.api.links import signed_content
from genflow.errors import GenflowError, clean_text
from genflow.media import shown_in_place
from genflow.queue.records import AssetRecord

_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")


def routes(context: Context) -> APIRouter:
    """The routes of assets."""
    router = APIRouter(prefix="/api/v2/assets", tags=["assets"])

    @router.get("/{asset_id}")
    async def look(request: Request, asset_id: str) -> JSONResponse:
        """The asset's record, with a fresh link to its bytes."""
        return JSONResponse(shapes.asset(await asset_of(context, request, asset_id), context.links(request)))

    @router.delete("/{asset_id}", status_code=204)
    async def delete(request: Request, asset_id: str) -> Response:
        """Delete the record; its bytes go with the last record of them."""
        if not await context.queue.files.delete(uuid_of("asset", asset_id), tenant=tenant_of(request)):
            raise not_found("asset", asset_id)
        return Response(status_code=204)

    @router.get("/{asset_id}/content")
    @router.head("/{asset_id}/content")
    async def content(request: Request, asset_id: str) -> Response:
        """The asset's bytes, whole or one range of them, or where they are had; with `w`, a small picture of it."""
        record = await asset_of(context, request, asset_id, any_tenant=signed_content(request))
        if "w" in request.query_params:
            return await _thumbnail(context, record, request.query_params)
        start, end = byte_range(request.headers.get("range"), record.size)
        if (elsewhere := await redirected(context, request, record)) is not None:
            return elsewhere
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Length": str(end - start),
            "Content-Disposition": _disposition(record),
            # What a node wrote must not run as a page of ours.
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox",
        }
        if (start, end) != (0, record.size):
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{record.size}"
        status = 206 if "Content-Range" in headers else 200
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers, media_type=record.content_type)
        body = await _opened(context, record, start, end)
        return StreamingResponse(body, status_code=status, headers=headers, media_type=record.content_type)

    return router


async def _thumbnail(context: Context, record: AssetRecord, query: Mapping[str, str]) -> Response:
    """A small picture, not kept: it is quickly made, and whoever asked may keep it, for an asset never changes."""
    width, kind = query.get("w", ""), query.get("format", "webp")
    if not (width.isascii() and width.isdecimal() and len(width) <= 4 and int(width) in thumbnails.WIDTHS):
        limit = [thumbnails.WIDTHS[0], thumbnails.WIDTHS[-1]]
        message = f"w must be a whole number of pixels from {limit[0]} to {limit[1]}."
        raise invalid_request(message, field="w", got=clean_text(width, 40))
    if kind not in thumbnails.FORMATS:
        message = f"format must be one of {', '.join(thumbnails.FORMATS)}."
        raise invalid_request(message, field="format", got=clean_text(kind, 40))
    if record.hash is None:
        raise not_found("asset", str(record.id))
    if record.size > thumbnails.SOURCE_BYTES:
        raise thumbnails.unsupported(f"the file has {record.size} bytes, more than {thumbnails.SOURCE_BYTES}")
    async with context.maker.photo_turns:
        data = b"".join([chunk async for chunk in context.store.read(record.hash)])
        pixels = context.settings.max_photo_pixels
        small = await asyncio.to_thread(thumbnails.thumbnail, data, int(width), kind, pixels)
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(small, media_type=thumbnails.FORMATS[kind], headers=headers)


async def asset_of(context: Context, request: Request, asset_id: str, *, any_tenant: bool = False) -> AssetRecord:
    """An asset's record. GenflowError 404 `not_found` where there is none, or it is past its time.

    `any_tenant`: whoever's it is, for the request shows our signature for this very asset.
    """
    wanted = uuid_of("asset", asset_id)
    found = await context.queue.assets([wanted], tenant=None if any_tenant else tenant_of(request))
    if wanted not in found:
        raise not_found("asset", asset_id)
    return found[wanted]


def byte_range(header: str | None, size: int) -> tuple[int, int]:
    """Which bytes to send: from `start` up to and without `end`.

    A header that is no single byte range counts as absent (RFC 9110, section 14.2). GenflowError 416
    `range_not_satisfiable` for a range past the end, naming the size.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None:
        return 0, size
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    elif last and int(last) < int(first):
        return 0, size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise GenflowError(
            "range_not_satisfiable",
            f"The file has {size} bytes; the range {match.group()} is not among them.",
            status=416,
            details={"field": "Range", "limit": size, "got": match.group()},
            headers={"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"},
        )
    return start, end


def _disposition(record: AssetRecord) -> str:
    way = "inline" if shown_in_place(record.content_type) else "attachment"
    return f"{way}; filename*=UTF-8''{quote(record.name.rpartition('/')[2], safe='')}"


async def _opened(context: Context, record: AssetRecord, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes, the first of them read already: a store that is away is still an answer of its own."""
    if record.hash is None:
        raise not_found("asset", str(record.id))
    chunks = cast("AsyncGenerator[bytes]", context.store.read(record.hash, start, end))
    first = await anext(chunks, b"")

    async def rest() -> AsyncIterator[bytes]:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk

    return rest()
