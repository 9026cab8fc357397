"""What the routes share, and the small readings of a request that more than one of them needs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fastapi import Request

from genflow.api.errors import invalid_request, not_found
from genflow.api.links import Links, links_of
from genflow.errors import GenflowError, clean_text
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.store import Store
from genflow.workflow import unfit_character

PHOTOS_AT_ONCE = 2
"""Photos decoded at the same time in one process; each may take sixteen bytes of memory a pixel."""

METADATA_PAIRS = 16
METADATA_KEY_CHARACTERS = 256
METADATA_VALUE_CHARACTERS = 1_024

_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Context:
    """The rooms below, as one process's routes use them."""

    queue: Queue
    store: Store
    settings: Settings
    photo_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PHOTOS_AT_ONCE))

    def links(self, request: Request) -> Links:
        """The addresses for this request's answer."""
        return links_of(request, self.settings.public_url)


def uuid_of(what: str, given: str) -> UUID:
    """The id in a path. Whatever is no canonical UUID names nothing: GenflowError 404 `not_found`."""
    if not _UUID.fullmatch(given):
        raise not_found(what, given)
    return UUID(given)


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key, or None.

    Raises GenflowError 400 `invalid_request` unless it is one text of 1 to 255 printable ASCII characters.
    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        message = "The Idempotency-Key must be one text of 1 to 255 printable ASCII characters."
        raise invalid_request(message, field="Idempotency-Key", got=clean_text(", ".join(keys), 300))
    return keys[0]


def labels(value: Any) -> dict[str, str]:
    """A job's metadata: at most 16 pairs of texts. Refused whole, with GenflowError `metadata_invalid`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _metadata_invalid("must be an object of texts", reason="not_an_object", limit=None)
    if len(value) > METADATA_PAIRS:
        message = f"has {len(value)} pairs; at most {METADATA_PAIRS} are kept"
        raise _metadata_invalid(message, reason="too_many", limit=METADATA_PAIRS, got=len(value))
    for key, text in value.items():
        shown = clean_text(key, 80)
        if not isinstance(text, str):
            raise _metadata_invalid(f"{shown!r} must be a text", reason="not_a_text", limit=None, got=shown)
        if not 1 <= len(key) <= METADATA_KEY_CHARACTERS:
            message = f"the key {shown!r} must have 1 to {METADATA_KEY_CHARACTERS} characters"
            raise _metadata_invalid(message, reason="key_length", limit=METADATA_KEY_CHARACTERS, got=len(key))
        if len(text) > METADATA_VALUE_CHARACTERS:
            message = f"{shown!r} is longer than {METADATA_VALUE_CHARACTERS} characters"
            raise _metadata_invalid(message, reason="too_long", limit=METADATA_VALUE_CHARACTERS, got=len(text))
        if unfit := unfit_character(key) or unfit_character(text):
            raise _metadata_invalid(f"{shown!r} holds {unfit}", reason="unfit_text", limit=None, got=shown)
    return value


def _metadata_invalid(message: str, **details: Any) -> GenflowError:
    return GenflowError("metadata_invalid", f"metadata: {message}.", details={"field": "metadata", **details})
