"""`POST /api/v2/assets` and `/from-hash`: a file's bytes in, or named by their hash."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from genflow.api import shapes
from genflow.api.assets import asset_of
from genflow.api.bodies import bounded, json_fields
from genflow.api.context import Context, idempotency_key, tenant_of
from genflow.api.errors import invalid_request
from genflow.api.multipart import File, MultipartReader, Text
from genflow.errors import GenflowError, clean_text
from genflow.media import output_type
from genflow.storage.store import HASH_BYTES
from genflow.workflow import unfit_character

FORM_BYTES = 256 * 1024
"""Room for a form's texts and boundaries beside its file, in bytes."""
PATH_CHARACTERS = 1_024
TAGS, TAG_CHARACTERS = 32, 128
KEEP_S = range(60, 604_801)
"""Seconds that `expires_in` may ask for: a minute to a week (Comfy API v2)."""

_HASH = re.compile(r"blake3:([0-9a-f]{64})")
_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,100}"
_CONTENT_TYPE = re.compile(rf'{_WORD}/{_WORD}(?: *; *{_WORD}=(?:{_WORD}|"{_WORD}"))*')
_REQUIRED = ("file_path", "content_type")
_TEXTS = (*_REQUIRED, "expected_hash", "expires_in")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an upload's texts say of its file; empty where they don't."""

    file_path: str
    content_type: str
    hash: bytes | None
    tags: Sequence[str]
    keep_s: float | None


def routes(context: Context) -> APIRouter:
    """The routes by which assets come in."""
    router = APIRouter(prefix="/api/v2/assets", tags=["assets"])

    @router.post("", status_code=201)
    async def upload(request: Request) -> JSONResponse:
        """Keep a file. Its bytes go to the store as they come; 200 where they were there already."""
        tenant, key = tenant_of(request), idempotency_key(request)
        await context.queue.files.check_key(key, tenant=tenant)
        began = await context.queue.files.clock()
        limit = context.settings.max_asset_bytes
        over = _too_large(limit)
        form = _Upload(MultipartReader(request, bounded(request, limit + FORM_BYTES, over)))
        if not await form.file():
            raise invalid_request("The form has no file.", field="file", status=422)
        form.wanted(whole=False)  # what is wrong already costs nobody the rest of the file
        async with aclosing(form.file_and_rest()) as pieces:
            # Asked once the form has ended: what is wrong with its texts then keeps the file out of the store too.
            blob = await context.store.put(pieces, limit, expected=lambda: form.wanted(whole=True).hash)
        wanted = form.wanted(whole=True)
        made = await context.queue.files.upload(
            blob,
            name=wanted.file_path,
            type=output_type(wanted.file_path, wanted.content_type),
            content_type=wanted.content_type,
            began=began,
            tags=wanted.tags,
            keep_s=wanted.keep_s,
            key=key,
            tenant=tenant,
        )
        return await _shown(context, request, made.id, new=made.new, created_new=made.new)

    @router.post("/from-hash", status_code=201)
    async def from_hash(request: Request) -> JSONResponse:
        """An asset over bytes that you sent before; 200 where one that says the same was there."""
        fields = {name: value for name, (value, _) in (await json_fields(request, FORM_BYTES)).items()}
        hash = _hash("hash", fields.get("hash"))
        file_path = fields.get("file_path")
        made = await context.queue.files.from_hash(
            hash,
            name=None if file_path is None else _file_path(file_path),
            tags=_tags(fields.get("tags") or []),
            keep_s=_keep_s(fields.get("expires_in")),
            tenant=tenant_of(request),
        )
        if made is None:
            message = "There are no bytes of this hash among your files: send them."
            details = {"field": "hash", "got": fields["hash"]}
            raise GenflowError("blob_not_found", message, status=404, details=details)
        return await _shown(context, request, made.id, new=made.new, created_new=False)

    @router.head("/by-hash/{hash}")
    async def by_hash(request: Request, hash: str) -> Response:
        """Whether you have a file of this hash: 200 or 404, and nothing else."""
        found = _HASH.fullmatch(hash)
        has = found is not None and await context.queue.files.has(bytes.fromhex(found[1]), tenant=tenant_of(request))
        return Response(status_code=200 if has else 404)

    return router


async def _shown(context: Context, request: Request, asset: UUID, *, new: bool, created_new: bool) -> JSONResponse:
    """`new` tells by the status that something was made, `created_new` that bytes are kept that were not before."""
    shown = shapes.asset(await asset_of(context, request, str(asset)), context.links(request))
    return JSONResponse(shown | {"created_new": created_new}, status_code=201 if new else 200)


class _Upload:
    """One form as it comes. The store keeps nothing of a file whose form is refused, at whichever end that shows."""

    def __init__(self, reader: MultipartReader) -> None:
        self._reader = reader
        self._texts: dict[str, str] = {}
        self._tags: list[str] = []

    async def file(self) -> bool:
        """Read on to the file; False where the form ended without one."""
        while (part := await self._reader.next_part()) is not None:
            if isinstance(part, File):
                _only_file(part)
                return True
            self._take(part)
        return False

    def wanted(self, *, whole: bool) -> Wanted:
        """What the texts say; with `whole`, all that must be there is. Raises what is wrong with them."""
        texts = self._texts
        for name in _REQUIRED if whole else ():
            _needed(texts, name)
        return Wanted(
            file_path=_file_path(texts["file_path"]) if texts.get("file_path") else "",
            content_type=_content_type(texts["content_type"]) if texts.get("content_type") else "",
            hash=_hash("expected_hash", texts["expected_hash"]) if "expected_hash" in texts else None,
            tags=_tags(self._tags),
            keep_s=_keep_s(texts.get("expires_in")),
        )

    async def file_and_rest(self) -> AsyncGenerator[bytes]:
        """The file's bytes; once they are out, the rest of the form is read."""
        async for piece in self._reader.file_bytes():
            yield piece
        while (part := await self._reader.next_part()) is not None:
            if isinstance(part, File):
                _only_file(part)
                raise invalid_request("The field file stands twice in the form.", field="file")
            self._take(part)

    def _take(self, part: Text) -> None:
        if part.name == "tags":
            self._tags.append(part.value)
        elif part.name in self._texts:
            raise invalid_request(f"The field {part.name} stands twice in the form.", field=part.name)
        elif part.name in _TEXTS:  # others are fields that a newer client may know
            self._texts[part.name] = part.value


def _only_file(part: File) -> None:
    if part.name != "file":
        name = clean_text(part.name, 80)
        raise invalid_request(f"The form has a file in the field {name}; only file is one.", field=name)


def _too_large(limit: int) -> GenflowError:
    details = {"field": "file", "reason": "too_large", "limit": limit}
    return GenflowError("payload_too_large", f"The file is larger than {limit} bytes.", status=413, details=details)


def _needed(texts: Mapping[str, str], name: str) -> None:
    if not texts.get(name):
        raise invalid_request(f"The form must have {name}.", field=name, status=422)


def _hash(name: str, value: Any) -> bytes:
    found = _HASH.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        message = f"{name} must be blake3: and {2 * HASH_BYTES} lower-case hexadecimal digits."
        raise invalid_request(message, field=name, status=422, got=clean_text(str(value), 100))
    return bytes.fromhex(found[1])


def _file_path(value: Any) -> str:
    """Where the file would lie: a relative path that stays where it is."""
    shown = clean_text(str(value), 100)
    if not isinstance(value, str) or not 1 <= len(value) <= PATH_CHARACTERS or not value.isprintable():
        message = f"file_path must be a text of 1 to {PATH_CHARACTERS} printable characters."
        raise invalid_request(message, field="file_path", status=422, got=shown)
    parts = re.split(r"[/\\]", value)
    if {"", ".", ".."} & set(parts) or re.fullmatch(r"[A-Za-z]:.*", value):
        message = "file_path must name a file by a relative path without “..”, such as photo.png."
        raise invalid_request(message, field="file_path", status=422, got=shown)
    if parts[0] == "models":
        message = (
            "Model files are not uploaded: ComfyUI takes none over HTTP. Put them into the servers' model folders."
        )
        raise invalid_request(message, field="file_path", status=422, got=shown)
    return value


def _content_type(value: str) -> str:
    if not _CONTENT_TYPE.fullmatch(value):
        message = "content_type must be a media type such as image/png."
        raise invalid_request(message, field="content_type", status=422, got=clean_text(value, 100))
    return value


def _tags(value: Any) -> Sequence[str]:
    fits: Callable[[Any], bool] = lambda tag: (  # noqa: E731 - read once, below
        isinstance(tag, str) and 1 <= len(tag) <= TAG_CHARACTERS and not unfit_character(tag)
    )
    if not isinstance(value, list) or len(value) > TAGS or not all(map(fits, value)):
        message = f"tags must be at most {TAGS} texts of 1 to {TAG_CHARACTERS} characters."
        raise invalid_request(message, field="tags", status=422)
    return sorted(set(value))


def _keep_s(value: Any) -> float | None:
    if value in (None, ""):
        return None
    whole = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if isinstance(whole, bool) or not isinstance(whole, int) or whole not in KEEP_S:
        message = f"expires_in must be a whole number of seconds from {KEEP_S[0]} to {KEEP_S[-1]}."
        details = {"limit": [KEEP_S[0], KEEP_S[-1]]}
        raise GenflowError(
            "invalid_request", message, details={"field": "expires_in", "got": clean_text(str(value), 40)} | details
        )
    return float(whole)
