"""The simulator's own routes, `/simulator/…`: knobs, books, the log, and waiting for an event."""

from __future__ import annotations

import json

from aiohttp import web

from genflow.errors import GenflowError
from genflow.simulator.answers import SERVER, said
from genflow.simulator.books import EVENTS

WAIT_LIMIT_S = 600.0


def _refusal(fault: GenflowError) -> web.Response:
    return said({"error": fault.message}, fault.status)


async def get_knobs(request: web.Request) -> web.Response:
    """`GET /simulator/knobs`: every position, and the words left in the script."""
    server = request.app[SERVER]
    shown = server.knobs.shown() | {"script": list(server.script), "models": server.catalog.models}
    return said(shown | {"lacks": sorted(server.catalog.lacks)})


async def post_knobs(request: web.Request) -> web.StreamResponse:
    """`POST /simulator/knobs`: set some; 400 naming the known ones for an unknown one, and then none is set."""
    server = request.app[SERVER]
    try:
        body = json.loads(await request.read())
    except ValueError as fault:
        return said({"error": f"the body is no JSON: {fault}"}, 400)
    try:
        restart = server.set_knobs(body)
    except GenflowError as fault:
        return _refusal(fault)
    answer = said(server.knobs.shown())
    if restart is not None:
        answer.force_close()
        await answer.prepare(request)
        await answer.write_eof()
        server.restart_later(restart)
    return answer


async def get_books(request: web.Request) -> web.Response:
    """`GET /simulator/books`."""
    server = request.app[SERVER]
    return said(server.books.shown() | {"loaded_model": server.boot.bench.memory.model})


async def get_log(request: web.Request) -> web.Response:
    """`GET /simulator/log`: `[prompt id, start ms, end ms]` of every execution."""
    return said(request.app[SERVER].books.log())


async def wait(request: web.Request) -> web.Response:
    """`GET /simulator/wait?event=&prompt=&count=&timeout=`: answers when it happened that often; 504 if it did not."""
    server = request.app[SERVER]
    query = request.query
    event, prompt_id = query.get("event", "ended"), query.get("prompt")
    try:
        count, timeout_s = int(query.get("count", 1)), float(query.get("timeout", 30))
    except ValueError as fault:
        return said({"error": f"count and timeout must be numbers: {fault}"}, 400)
    if event not in EVENTS:
        return said({"error": f"unknown event {event!r}; known events: {', '.join(EVENTS)}"}, 400)
    try:
        seen = await server.books.wait(event, prompt_id, count, min(timeout_s, WAIT_LIMIT_S))
    except TimeoutError:
        seen = server.books.count(event, prompt_id)
        told = f"{event} happened {seen} times, not {count}, within {timeout_s:g} s"
        return said({"error": told, "count": seen}, 504)
    return said({"event": event, "count": seen})


def add_routes(app: web.Application) -> None:
    """Add the control routes."""
    app.router.add_get("/simulator/knobs", get_knobs)
    app.router.add_post("/simulator/knobs", post_knobs)
    app.router.add_get("/simulator/books", get_books)
    app.router.add_get("/simulator/log", get_log)
    app.router.add_get("/simulator/wait", wait)
