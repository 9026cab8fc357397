"""`/genflow/v1/dead-letters`: jobs that failed for good, for a person or a program: look, requeue, purge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api import dead_shapes
from genflow.api.bodies import json_fields
from genflow.api.context import Context, tenant_of
from genflow.api.errors import invalid_request, not_found
from genflow.api.pages import cursor_of, moment_of_place, moment_text, page_limit, place_of
from genflow.durations import moment_of
from genflow.errors import GenflowError, clean_text
from genflow.failures import FailureClass
from genflow.queue import DeadFilter
from genflow.queue.dead import GroupBy
from genflow.queue.queue import QueueFull
from genflow.queue.writer import Row

AT_ONCE = 100
"""Dead letters that one request requeues or purges at most; `next_cursor` leads to the rest."""
BODY_BYTES = 256 * 1024

_FILTERS = ("since", "until", "class", "code", "node", "server", "batch", "reason", "requeued")
_SHORT_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")
_LIST = "dead letters"
_PLACE = re.compile(r"([0-9]{1,17})_([0-9a-f]{32})")


def routes(context: Context) -> APIRouter:
    """The routes of dead letters."""
    router = APIRouter(prefix="/genflow/v1/dead-letters", tags=["dead letters"])
    dead = context.queue.dead

    @router.get("")
    async def listing(request: Request) -> JSONResponse:
        """Dead letters, the latest first; with `group`, how many there are of each."""
        query = request.query_params
        given = {name: _once(name, query.getlist(name)) for name in query}
        _check_names(given, (*_FILTERS, "limit", "cursor", "group"))
        wanted = _filter(given)
        if "group" in given:
            by = _group(given["group"])
            groups = await dead.groups(wanted, by, tenant=tenant_of(request))
            return JSONResponse({"by": by.value, "groups": [dead_shapes.group(row) for row in groups]})
        limit = page_limit(given.get("limit"))
        rows, more = await _page(request, wanted, limit, given.get("cursor"))
        return JSONResponse({"dead_letters": [dead_shapes.listed(row) for row in rows], "next_cursor": more})

    @router.post("/requeue")
    async def requeue_all(request: Request) -> JSONResponse:
        """Requeue those that match, at most a hundred a request; `next_cursor` leads to the rest."""
        given = await _fields(request, ("set", "again", "dry_run", "all", "cursor"))
        wanted, values, dry = _meant(given), _values(given), _flag(given, "dry_run")
        again = _flag(given, "again")
        rows, more = await _page(request, wanted, AT_ONCE, given.get("cursor"))
        made: list[dict[str, Any]] = []
        refused: list[dict[str, Any]] = []
        for place, row in enumerate(rows):
            try:
                new = await dead.requeue(row["id"], values=values, again=again, dry_run=dry, tenant=tenant_of(request))
            except QueueFull:
                if place == 0:
                    raise
                more = _cursor_of(rows[place - 1])
                break
            except GenflowError as error:
                refused.append({"id": str(row["id"]), "error": {"code": error.code, "message": error.message}})
            else:
                made.append(dead_shapes.requeued(row["id"], None if dry else new))
        return JSONResponse({"requeued": made, "refused": refused, "next_cursor": more, "dry_run": dry})

    @router.post("/purge")
    async def purge_all(request: Request) -> JSONResponse:
        """Delete those that match, at most a hundred a request; `next_cursor` leads to the rest."""
        given = await _fields(request, ("dry_run", "all", "cursor"))
        wanted, dry = _meant(given), _flag(given, "dry_run")
        rows, more = await _page(request, wanted, AT_ONCE, given.get("cursor"))
        ids = [row["id"] for row in rows]
        gone = set(ids if dry else await _purge(request, ids))
        purged = [str(each) for each in ids if each in gone]
        return JSONResponse({"purged": purged, "next_cursor": more, "dry_run": dry})

    @router.get("/{given_id}")
    async def show(request: Request, given_id: str) -> JSONResponse:
        """All that is known of one, traceback included: for operators."""
        job_id = await _id(request, given_id)
        letter = await dead.look(job_id, tenant=tenant_of(request))
        story = await context.queue.story(job_id, tenant=tenant_of(request))
        if story is None:
            raise not_found("dead letter", given_id)
        return JSONResponse(dead_shapes.whole(letter, story))

    @router.post("/{given_id}/requeue", status_code=201)
    async def requeue(request: Request, given_id: str) -> JSONResponse:
        """A new job of this dead letter, which stays; once, unless `again`."""
        given = await _fields(request, ("set", "again", "dry_run"), filters=False)
        job_id, dry = await _id(request, given_id), _flag(given, "dry_run")
        new = await dead.requeue(
            job_id, values=_values(given), again=_flag(given, "again"), dry_run=dry, tenant=tenant_of(request)
        )
        shown = dead_shapes.requeued(job_id, None if dry else new) | {"dry_run": dry}
        return JSONResponse(shown, status_code=200 if dry else 201)

    @router.delete("/{given_id}")
    async def purge(request: Request, given_id: str) -> JSONResponse:
        """Delete one; its id stays known and runs nothing."""
        job_id = await _id(request, given_id)
        if not await _purge(request, [job_id]):
            await dead.look(job_id, tenant=tenant_of(request))
        return JSONResponse({"purged": [str(job_id)]})

    async def _purge(request: Request, jobs: list[UUID]) -> list[UUID]:
        gone = await dead.purge(jobs, tenant=tenant_of(request))
        for job in gone:
            await context.store.unname(str(job))
        return gone

    async def _id(request: Request, given: str) -> UUID:
        """The dead letter meant by an id or by its first digits, eight or more."""
        digits = given.replace("-", "")
        if not _SHORT_ID.fullmatch(given) or len(digits) > 32:
            raise not_found("dead letter", given)
        if len(digits) == 32:
            return UUID(digits)
        found = await dead.between(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")), tenant=tenant_of(request))
        if not found:
            raise not_found("dead letter", given)
        if len(found) > 1:
            message = f"Several dead letters begin with {given}; write more of the id."
            details = {"field": "id", "got": given, "ids": [str(each) for each in found]}
            raise GenflowError("ambiguous_id", message, status=409, details=details)
        return found[0]

    async def _page(request: Request, wanted: DeadFilter, limit: int, cursor: Any) -> tuple[list[Row], str | None]:
        """Those that match, and the cursor to the next of them."""
        rows = await dead.page(wanted, limit=limit + 1, before=_before(cursor), tenant=tenant_of(request))
        return rows[:limit], _cursor_of(rows[limit - 1]) if len(rows) > limit else None

    return router


async def _fields(request: Request, names: tuple[str, ...], *, filters: bool = True) -> dict[str, Any]:
    """The fields of a body; none is an empty one. A field that is not known is refused: it may be a filter misspelt."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return {}
    fields = {name: value for name, (value, _) in (await json_fields(request, BODY_BYTES)).items()}
    _check_names(fields, (*(_FILTERS if filters else ()), *names))
    return {name: value for name, value in fields.items() if value is not None}


def _check_names(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            shown = clean_text(name, 80)
            raise invalid_request(f"There is no {shown}; known are {', '.join(names)}.", field=shown)


def _once(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise invalid_request(f"{name} stands {len(values)} times in the query.", field=name)
    return values[0]


def _meant(given: Mapping[str, Any]) -> DeadFilter:
    """The filter of a change. Without one, `all` must say that every dead letter is meant."""
    wanted = _filter(given)
    if not wanted.narrows and not _flag(given, "all"):
        raise invalid_request('No filter is given: say "all": true where every dead letter is meant.', field="all")
    return wanted


def _filter(given: Mapping[str, Any]) -> DeadFilter:
    texts = {name: _text(name, given[name]) for name in _FILTERS if name in given and name != "requeued"}
    if (kind := texts.get("class")) is not None and kind not in list(FailureClass):
        raise invalid_request(f"class must be one of {', '.join(FailureClass)}.", field="class", got=kind)
    now = datetime.now(UTC)
    return DeadFilter(
        since=_moment("since", texts, now),
        until=_moment("until", texts, now),
        failure_class=kind,
        code=texts.get("code"),
        node_class=texts.get("node"),
        server=texts.get("server"),
        batch=_batch(texts.get("batch")),
        says=texts.get("reason"),
        requeued=_flag(given, "requeued"),
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise invalid_request(f"{name} must be a text that is not empty.", field=name)
    return clean_text(value, 1_000)


def _moment(name: str, texts: Mapping[str, str], now: datetime) -> datetime | None:
    if name not in texts:
        return None
    try:
        return moment_of(texts[name], now)
    except ValueError as error:
        raise invalid_request(f"{name}: {error}.", field=name, got=clean_text(texts[name], 80)) from None


def _batch(given: str | None) -> UUID | None:
    if given is None:
        return None
    try:
        return UUID(given)
    except ValueError:
        raise invalid_request("batch must be a batch's id.", field="batch", got=clean_text(given, 80)) from None


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise invalid_request(f"{name} must be true or false.", field=name)
    return value


def _values(given: Mapping[str, Any]) -> dict[str, Any] | None:
    value = given.get("set")
    if value is not None and not isinstance(value, dict):
        raise invalid_request('set must be an object such as {"3.seed": 7}.', field="set")
    return value


def _group(given: str) -> GroupBy:
    try:
        return GroupBy(given)
    except ValueError:
        message = f"group must be one of {', '.join(GroupBy)}."
        raise invalid_request(message, field="group", got=clean_text(given, 80)) from None


def _cursor_of(row: Row) -> str:
    return cursor_of(_LIST, f"{moment_text(row['ended_at'])}_{row['id'].hex}")


def _before(cursor: Any) -> tuple[datetime, UUID] | None:
    place = place_of(_LIST, cursor, _PLACE)
    return None if place is None else (moment_of_place(place[1]), UUID(place[2]))
