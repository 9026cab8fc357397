"""`GET /api/v2/jobs`, the list of the Comfy API v2: what its query may say, and the page that answers it."""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request

from genflow.api import shapes
from genflow.api.context import Context, tenant_of
from genflow.api.errors import invalid_request
from genflow.api.pages import cursor_of, page_limit, place_of
from genflow.errors import GenflowError, clean_text
from genflow.intake.admission import METADATA_KEY_CHARACTERS, METADATA_VALUE_CHARACTERS
from genflow.jobs import Status
from genflow.workflow import unfit_character

PAGE_LIMIT = 100
FILTERS = 3
"""Labels by which one list may be narrowed."""

_LIST = "jobs"
_PLACE = re.compile(r"[0-9]{1,18}")
_FILTER = re.compile(r"metadata\[(.*)\]", re.DOTALL)


async def page_of_jobs(context: Context, request: Request) -> dict[str, Any]:
    """A page, newest first; `next_cursor` leads to the older ones and is null at the end.

    GenflowError 400: `invalid_metadata_filter`, `invalid_cursor`, `invalid_request`.
    """
    query = request.query_params
    limit = page_limit(query.get("limit"), PAGE_LIMIT)
    place = place_of(_LIST, query.get("cursor"), _PLACE)
    rows = await context.queue.page(
        limit=limit + 1,
        before=None if place is None else int(place[0]),
        statuses=_statuses(query.getlist("status")),
        labels=_labels(query.multi_items()),
        tenant=tenant_of(request),
    )
    more = cursor_of(_LIST, rows[limit - 1]["seq"]) if len(rows) > limit else None
    return {"jobs": [shapes.light(row) for row in rows[:limit]], "next_cursor": more}


def _statuses(given: list[str]) -> list[Status] | None:
    names = [name for text in given for name in text.split(",") if name]
    for name in names:
        if name not in {status.value for status in Status}:
            message = f"status must be some of {', '.join(Status)}, separated by commas."
            raise invalid_request(message, field="status", got=clean_text(name, 80))
    return [Status(name) for name in names] or None


def _labels(given: list[tuple[str, str]]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for name, value in given:
        if not name.startswith("metadata"):
            continue
        shown, found = clean_text(name, 120), _FILTER.fullmatch(name)
        if found is None:
            raise _invalid(f"a label is filtered by metadata[<key>]=<value>, not by {shown}", shown)
        key = found[1]
        if not 1 <= len(key) <= METADATA_KEY_CHARACTERS or len(value) > METADATA_VALUE_CHARACTERS:
            raise _invalid(f"{shown}: no label is so long, or has no key", shown)
        if unfit := unfit_character(key) or unfit_character(value):
            raise _invalid(f"{shown} holds {unfit}", shown)
        if labels.setdefault(key, value) != value:
            raise _invalid(f"{shown} is asked for with two values", shown)
    if len(labels) > FILTERS:
        raise _invalid(f"there are {len(labels)} filters; at most {FILTERS} are possible", None)
    return labels


def _invalid(message: str, got: str | None) -> GenflowError:
    details = {"field": "metadata", "limit": FILTERS, "got": got}
    return GenflowError(
        "invalid_metadata_filter", f"The list can't be narrowed so: {message}.", status=400, details=details
    )
