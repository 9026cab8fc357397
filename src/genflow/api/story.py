"""`/genflow/v1/jobs`: the list of jobs, and each job's own story."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api import shapes
from genflow.api.context import Context, tenant_of, uuid_of
from genflow.api.errors import invalid_request, not_found
from genflow.api.pages import cursor_of, page_limit, place_of
from genflow.api.waiting import wait_of
from genflow.errors import clean_text
from genflow.jobs import State

_LIST = "stories"
_PLACE = re.compile(r"[0-9]{1,18}")
_STATES = {state.name.lower(): state for state in State}


def routes(context: Context) -> APIRouter:
    """The routes of genflow's own view of jobs."""
    router = APIRouter(prefix="/genflow/v1/jobs", tags=["story"])

    @router.get("")
    async def listing(request: Request) -> JSONResponse:
        """Jobs, newest first, `limit` at a time; `next_cursor` leads to the older ones and is null at the end."""
        query = request.query_params
        limit = page_limit(query.get("limit"))
        place = place_of(_LIST, query.get("cursor"), _PLACE)
        rows = await context.queue.page(
            limit=limit + 1,
            before=None if place is None else int(place[0]),
            states=_states(query),
            tenant=tenant_of(request),
        )
        more = cursor_of(_LIST, rows[limit - 1]["seq"]) if len(rows) > limit else None
        return JSONResponse({"jobs": [shapes.listed(row) for row in rows[:limit]], "next_cursor": more})

    @router.get("/{job_id}")
    async def story(request: Request, job_id: str) -> JSONResponse:
        """What was tried, where, and what ran: attempts, submits, takeovers, resubmits, seed.

        `?wait=N` holds the answer back until the job has ended, N seconds at most.
        """
        wait_s, wanted = wait_of(request.query_params.get("wait")), uuid_of("job", job_id)
        row = await context.queue.story(wanted, tenant=tenant_of(request))
        if row is not None and wait_s and not State(row["state"]).terminal:
            await context.ends.wait(wanted, wait_s)
            row = await context.queue.story(wanted, tenant=tenant_of(request))
        if row is None:
            raise not_found("job", job_id)
        return JSONResponse(shapes.story(row))

    return router


def _states(query: object) -> list[State] | None:
    given = [name for text in query.getlist("state") for name in text.split(",") if name]  # type: ignore[attr-defined]
    for name in given:
        if name not in _STATES:
            message = f"state must be some of {', '.join(_STATES)}, separated by commas."
            raise invalid_request(message, field="state", got=clean_text(name, 80))
    return [_STATES[name] for name in given] or None
