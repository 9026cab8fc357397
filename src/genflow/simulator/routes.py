"""The routes of a ComfyUI server that have to do with prompts, and the application that holds all routes."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from genflow.integrations.comfyui_genflow import Doorway, Guard
from genflow.simulator import control, faults, files, jobs_routes
from genflow.simulator.answers import CSP, SERVER, cut, said, trouble
from genflow.simulator.books import mark_of
from genflow.simulator.prompts import Item, canonical_uuid
from genflow.simulator.run import now_ms
from genflow.simulator.sockets import FEATURES
from genflow.simulator.validation import validate_prompt

if TYPE_CHECKING:
    from genflow.simulator.server import SimulatedServer

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRETS = ("auth_token_comfy_org", "api_key_comfy_org")


def _refused(kind: str, message: str, details: str) -> web.Response:
    error = {"type": kind, "message": message, "details": details, "extra_info": {}}
    return said({"error": error, "node_errors": {}}, 400)


async def post_prompt(request: web.Request) -> web.StreamResponse:
    """`POST /prompt`, with whatever the knobs and the script mean to do with it."""
    server = request.app[SERVER]
    if server.knobs.take("too_large") is not None:
        limit = FEATURES["max_upload_size"]
        return web.Response(status=413, text=f"Maximum request body size {limit} exceeded.")
    body = json.loads(await request.read())
    if "prompt" not in body:
        server.boot.next_number()
        return _refused("no_prompt", "No prompt provided", "No prompt provided")
    shot = server.knobs.take("reply")
    if shot is None:
        return _accept(server, body)
    mode = shot["mode"]
    if mode == "late" and not shot["queued"]:
        await asyncio.sleep(shot["seconds"])
    real = _accept(server, body) if shot["queued"] or mode == "late" else None
    if real is not None and real.status != 200:
        return real
    return await _spoiled(request, mode, shot, real)


async def _spoiled(
    request: web.Request, mode: str, shot: dict[str, Any], real: web.Response | None
) -> web.StreamResponse:
    if mode == "lost":
        return await cut(request)
    if mode == "late" and real is not None:
        if shot["queued"]:
            await asyncio.sleep(shot["seconds"])
        return real
    if mode in ("html", "502"):
        status, title = (200, "Please wait") if mode == "html" else (502, "502 Bad Gateway")
        page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
        return web.Response(status=status, text=page, content_type="text/html", headers={"Server": "nginx"})
    if mode == "node_errors" and real is not None:
        told = json.loads(real.text or "")
        reason = {"type": "required_input_missing", "message": "Required input is missing", "details": "images"}
        reason["extra_info"] = {"input_name": "images"}  # type: ignore[assignment]
        told["node_errors"] = {"9": {"errors": [reason], "dependent_outputs": ["9"], "class_type": "SaveImage"}}
        return said(told)
    return trouble()


def _accept(server: SimulatedServer, body: dict[str, Any]) -> web.Response:
    """Validate and queue. Shapes that ComfyUI does not expect raise, and become its 500."""
    boot, old = server.boot, server.options.old
    number = float(body["number"]) if "number" in body else float("nan")
    if "number" not in body:
        count = boot.next_number()
        number = -count if body.get("front") else count
    prompt_id = body.get("prompt_id")
    if old:
        prompt_id = str(body.get("prompt_id", uuid.uuid4()))
    elif prompt_id is None:
        prompt_id = str(uuid.UUID(bytes=server.rng.randbytes(16), version=4))
    elif not canonical_uuid(prompt_id):
        details = "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to let the server "
        return _refused("invalid_prompt_id", "prompt_id must be a valid UUID", details + "generate one")
    graph = body["prompt"]
    word = server.next_word()
    if word == "500":
        return trouble()
    if word in faults.VALIDATION_CLASSES:
        return said(faults.refusal(word, graph), 400)
    verdict = validate_prompt(
        graph,
        server.catalog,
        lambda name: server.folders.annotated(name) is not None,
        targets=body.get("partial_execution_targets"),
        old=old,
    )
    extra_data = body.get("extra_data", {})
    if not isinstance(extra_data, dict):
        raise TypeError("extra_data is no object")
    if "client_id" in body:
        extra_data["client_id"] = body["client_id"]
    if verdict.error is not None:
        return said({"error": verdict.error, "node_errors": verdict.node_errors}, 400)
    secrets: dict[str, Any] = {}
    if not old:
        secrets = {key: extra_data.pop(key) for key in SECRETS if key in extra_data}
        extra_data["create_time"] = now_ms()
    submit, token = mark_of(extra_data)
    numbers = [number]
    if server.knobs.take("posted_twice") is not None:
        numbers.append(boot.next_number())
    for each in numbers:
        server.books.posted(prompt_id, submit, token)
        item = Item(each, prompt_id, graph, extra_data, verdict.outputs, secrets, word, submit)
        try:
            boot.prompts.put(item)
        finally:
            boot.worker.queue_updated()
    return said({"prompt_id": prompt_id, "number": number, "node_errors": verdict.node_errors})


async def get_prompt(request: web.Request) -> web.Response:
    """`GET /prompt`: how many prompts remain."""
    remaining = request.app[SERVER].boot.prompts.remaining
    return said({"exec_info": {"queue_remaining": remaining}})


async def get_queue(request: web.Request) -> web.Response:
    """`GET /queue`: everybody's prompts with their graphs, pending ones in heap order."""
    prompts = request.app[SERVER].boot.prompts
    running = [prompts.running.shown()] if prompts.running is not None else []
    pending = [item.shown() for item in (*prompts.pending, *prompts.standing)]
    return said({"queue_running": running, "queue_pending": pending})


async def post_queue(request: web.Request) -> web.Response:
    """`POST /queue`: delete pending prompts, one per mention, or clear. Always an empty 200."""
    server = request.app[SERVER]
    boot = server.boot
    body = json.loads(await request.read())
    if body.get("clear"):
        for item in boot.prompts.clear_pending():
            server.books.removed(item.prompt_id, item.submit)
        boot.worker.queue_updated()
    for prompt_id in body.get("delete", []):
        server.take_back(prompt_id)
    return web.Response()


async def get_history(request: web.Request) -> web.Response:
    """`GET /history?max_items=&offset=`; a value that is no number is a 500."""
    query = request.query
    max_items = int(query["max_items"]) if "max_items" in query else None
    offset = int(query["offset"]) if "offset" in query else -1
    return said(request.app[SERVER].boot.prompts.shown_history(max_items, offset))


async def get_history_of(request: web.Request) -> web.Response:
    """`GET /history/ID`: `{}` for an id that is unknown, pending, running or deleted; never 404."""
    prompt_id = request.match_info["prompt_id"]
    entry = request.app[SERVER].boot.prompts.history.get(prompt_id)
    return said({} if entry is None else {prompt_id: entry})


async def post_history(request: web.Request) -> web.Response:
    """`POST /history`: delete entries or clear."""
    server = request.app[SERVER]
    history = server.boot.prompts.history
    body = json.loads(await request.read())
    wanted = [*history] if body.get("clear") else []
    for prompt_id in [*wanted, *body.get("delete", [])]:
        if history.pop(prompt_id, None) is not None:
            server.books.deleted(prompt_id)
    return web.Response()


async def post_interrupt(request: web.Request) -> web.Response:
    """`POST /interrupt`: always 200; stops the named prompt if it runs, or whatever runs if none is named."""
    server = request.app[SERVER]
    try:
        body = json.loads(await request.read())
    except ValueError:
        body = {}
    prompt_id = body.get("prompt_id") if isinstance(body, dict) else None
    running = server.boot.prompts.running
    meant = not prompt_id or (running is not None and running.prompt_id == prompt_id)
    # Lost: the flag is set back as the execution begins, so that an interrupt within the first millisecond is not seen.
    if meant and server.knobs.take("interrupt_ignored") is None and server.knobs.take("interrupt_lost") is None:
        server.boot.bench.interrupt.set()
    return web.Response()


async def post_free(request: web.Request) -> web.Response:
    """`POST /free`: `unload_models` keeps the node cache, `free_memory` drops it; both when the worker is idle."""
    body = json.loads(await request.read())
    wanted = {flag for flag in ("unload_models", "free_memory") if body.get(flag)}
    if wanted:
        request.app[SERVER].boot.worker.free(wanted)
    return web.Response()


async def websocket(request: web.Request) -> web.StreamResponse:
    """`GET /ws?clientId=`."""
    server = request.app[SERVER]
    if server.knobs.take("socket_refused") is not None:
        return web.Response(status=503)
    orphan = server.knobs.take("socket_orphan") is not None
    return await server.boot.sockets.serve(request, server.boot.greeting, orphan)


async def nothing(request: web.Request) -> web.Response:
    """Any other path: an empty 404."""
    return web.Response(status=404)


@web.middleware
async def manners(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Freeze, refuse foreign pages, and turn what a handler raises into aiohttp's own 500."""
    if not request.path.startswith("/simulator/"):
        await request.app[SERVER].thawed()
        if _foreign(request):
            return web.Response(status=403)
        if request.method == "POST":
            request.app[SERVER].books.note("change")
    try:
        return await handler(request)
    except web.HTTPException as answer:
        raise answer from None
    except Exception as fault:
        log.debug("simulated handler failed", path=request.path, error=repr(fault), at=time.time())
        return trouble()


def _foreign(request: web.Request) -> bool:
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    host = (request.host or "").lower()
    loopback = host.split(":")[0] in ("127.0.0.1", "localhost") or host.startswith("[::1]")
    return loopback and urlsplit(origin).netloc.lower() != host


async def _policy(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("Content-Security-Policy", CSP)


def build_app(server: SimulatedServer) -> web.Application:
    """The application of one boot. Every route stands with and without `/api`; the jobs routes only with it."""
    door = Doorway(Guard(server.guard_file)) if server.options.guard else None
    middlewares = [manners] if door is None else [manners, door.middleware()]
    app = web.Application(middlewares=middlewares, client_max_size=FEATURES["max_upload_size"])
    app[SERVER] = server
    app.on_response_prepare.append(_policy)
    routes: list[tuple[str, str, Handler]] = [
        ("POST", "/prompt", post_prompt),
        ("GET", "/prompt", get_prompt),
        ("GET", "/queue", get_queue),
        ("POST", "/queue", post_queue),
        ("GET", "/history", get_history),
        ("GET", "/history/{prompt_id}", get_history_of),
        ("POST", "/history", post_history),
        ("POST", "/interrupt", post_interrupt),
        ("POST", "/free", post_free),
        ("GET", "/ws", websocket),
        *files.ROUTES,
    ]
    if not server.options.old:
        routes += [("GET", path, handler) for path, handler in jobs_routes.READ]
        routes += [("POST", path, handler) for path, handler in jobs_routes.WRITE]
    if door is not None:
        routes += [("GET", "/genflow/guard", door.about), ("POST", "/genflow/guard", door.bar)]
    for method, path, handler in routes:
        for prefix in ("", "/api"):
            add = app.router.add_get if method == "GET" else app.router.add_post  # add_get answers HEAD too
            add(prefix + path, handler)
    control.add_routes(app)
    app.router.add_get("/{path:.*}", nothing)
    return app
