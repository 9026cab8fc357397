"""Request bodies, read under a bound in bytes: never more in memory than the request may hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from genflow.api import photo
from genflow.api.errors import invalid_request
from genflow.errors import GenflowError, clean_text
from genflow.workflow import read_json, split_object, workflow_not_json

FORM_FIELDS_BYTES = 1024 * 1024
"""Room for a form's texts and headers beside its file, in bytes."""

_FIELD_LIMIT_BYTES = 128 * 1024
_FIELDS_LIMIT = 64


def content_type(request: Request) -> str:
    """The request's media type without its parameters, in lower case; empty where none was sent."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported_media_type(got: str, accepted: str) -> GenflowError:
    """The refusal of a body of the wrong media type."""
    message = f"Send the body as {accepted} (the Content-Type header says {clean_text(got, 80)})."
    details = {"field": "Content-Type", "limit": accepted, "got": clean_text(got, 80)}
    return GenflowError("unsupported_media_type", message, status=415, details=details)


def _declared_length(request: Request) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() else 0


def _over(limit: int) -> GenflowError:
    message = f"The request is larger than {limit} bytes."
    return GenflowError("payload_too_large", message, status=413, details={"field": "body", "limit": limit})


async def bounded(request: Request, limit: int, over: GenflowError | None = None) -> AsyncIterator[bytes]:
    """The body's chunks, at most `limit` bytes in all.

    Raises `over` (`payload_too_large` unless given) as soon as the length that the client declared, or what really
    came, is more than that.
    """
    seen = _declared_length(request)
    if seen > limit:
        raise over or _over(limit)
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > limit:
            raise over or _over(limit)
        yield chunk


async def json_fields(request: Request, limit: int, *, workflow: bool = False) -> Mapping[str, tuple[Any, str]]:
    """The fields of a JSON object, each with its value and its exact text.

    Raises GenflowError: 413 over `limit` bytes, 415 for another media type, 400 `invalid_request` for no JSON object;
    with `workflow`, 422 `invalid_workflow` where it is the workflow's own text that is not strict JSON.
    """
    kind = content_type(request)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise unsupported_media_type(kind, "application/json")
    body = b"".join([chunk async for chunk in bounded(request, limit)])
    try:
        return split_object(body)
    except ValueError as error:
        if workflow and getattr(error, "key", None) == "workflow":
            raise workflow_not_json(error) from None
        raise invalid_request(f"The request's body is not a JSON object: {error}.", field="body") from None


async def multipart_form(request: Request, photo_limit: int) -> FormData:
    """The fields of a multipart form; the file, if there is one, lies on disk. Close it after use.

    Raises GenflowError: 413 as soon as more has come than a photo of `photo_limit` bytes and its fields can be;
    400 `invalid_request` for a broken form.
    """
    over = photo.too_large(photo_limit, None)
    chunks = bounded(request, photo_limit + FORM_FIELDS_BYTES, over)
    parser = MultiPartParser(
        request.headers,
        chunks,  # type: ignore[arg-type]
        max_files=1,
        max_fields=_FIELDS_LIMIT,
        max_part_size=_FIELD_LIMIT_BYTES,
    )
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise invalid_request(f"The form can't be read: {error.message}", field="body") from None


def form_fields(form: FormData) -> tuple[dict[str, str], UploadFile | None]:
    """The texts of a form by name, and its photo.

    Raises GenflowError 400 `invalid_request` for a field that stands twice or a file under another name than `photo`.
    """
    texts: dict[str, str] = {}
    upload: UploadFile | None = None
    for name, value in form.multi_items():
        shown = clean_text(name, 80)
        if name in texts or (name == "photo" and upload is not None):
            raise invalid_request(f"The field {shown} stands twice in the form.", field=shown)
        if isinstance(value, str):
            texts[name] = value
        elif name == "photo":
            upload = value
        else:
            raise invalid_request(f"The form has a file in the field {shown}; only photo is one.", field=shown)
    return texts, upload


def object_field(field: str, text: str) -> dict[str, Any]:
    """A form's text that holds a JSON object. Raises GenflowError 400 `invalid_request` for anything else."""
    try:
        value = read_json(text)
    except ValueError as error:
        raise invalid_request(f"The field {field} is not JSON: {error}.", field=field) from None
    if not isinstance(value, dict):
        raise invalid_request(f"The field {field} must be a JSON object.", field=field)
    return value
