"""Lists by the page: how long a page is, and the cursor that leads from one to the next.

A cursor says which list it is of and where in it the page ended. Clients pass it on unchanged; what it holds is ours.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from genflow.api.errors import invalid_request
from genflow.errors import GenflowError, clean_text

PAGE_DEFAULT = 50
PAGE_LIMIT = 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,200}")


def page_limit(given: str | None, most: int = PAGE_LIMIT) -> int:
    """How many rows a page has. GenflowError 400 `invalid_request` for what is no number from 1 to `most`."""
    if given is None:
        return PAGE_DEFAULT
    if not (given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= most):
        message = f"limit must be a whole number from 1 to {most}."
        raise invalid_request(message, field="limit", got=clean_text(given, 80))
    return int(given)


def cursor_of(listed: str, place: object) -> str:
    """The cursor of a page of this list that ended at `place`."""
    return base64.urlsafe_b64encode(f"{listed}:{place}".encode()).rstrip(b"=").decode()


def place_of(listed: str, given: Any, form: re.Pattern[str]) -> re.Match[str] | None:
    """The place that a cursor of this list names, in this form; None for the first page.

    GenflowError 400 `invalid_cursor` for anything that `cursor_of` did not make for it.
    """
    if given is None:
        return None
    text = _decoded(given) if isinstance(given, str) and _CURSOR.fullmatch(given) else ""
    found = form.fullmatch(text.removeprefix(f"{listed}:")) if text.startswith(f"{listed}:") else None
    if found is None:
        message = "cursor must be the next_cursor of an answer of this list, unchanged."
        details = {"field": "cursor", "got": clean_text(str(given), 80)}
        raise GenflowError("invalid_cursor", message, status=400, details=details)
    return found


def moment_text(instant: datetime) -> str:
    """A time as the place in a list that is ordered by it: microseconds since 1970."""
    return str((instant - _EPOCH) // timedelta(microseconds=1))


def moment_of_place(text: str) -> datetime:
    """The time that `moment_text` wrote as this text of at most 17 digits."""
    return _EPOCH + timedelta(microseconds=int(text))


def _decoded(given: str) -> str:
    try:
        return base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""
