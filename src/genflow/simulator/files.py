"""Uploads, views and the server's descriptions of itself (docs/design/comfyui.md, section 6)."""

from __future__ import annotations

import asyncio
import hashlib
import io
import mimetypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image

from genflow.simulator.answers import SERVER, cut, said, trouble
from genflow.simulator.catalog import FOLDERS
from genflow.simulator.folders import KINDS
from genflow.simulator.memory import GIB
from genflow.simulator.sockets import FEATURES

ACTIVE_TYPES = ("text/html", "application/xhtml+xml", "image/svg+xml", "text/javascript", "text/css")


async def upload(request: web.Request) -> web.Response:
    """`POST /upload/image`: the same bytes are stored once; other bytes under a taken name are renamed."""
    server = request.app[SERVER]
    form = await request.post()
    field = form.get("image")
    if field is None:
        return web.Response(status=400)
    if not isinstance(field, web.FileField):
        return trouble()
    kind = str(form.get("type") or "input")
    if kind not in KINDS:
        return trouble()
    subfolder = str(form.get("subfolder", ""))
    folder = server.folders.inside(kind, subfolder)
    if folder is None or not field.filename or server.folders.inside(kind, subfolder, field.filename) is None:
        return web.Response(status=400)
    overwrite = form.get("overwrite") in ("true", "1")
    # Not in a thread: the real server's handler lets nothing in between either, so that the first writer wins.
    data = field.file.read()
    was_there = (folder / field.filename).is_file()
    name = _store(folder, field.filename, data, overwrite)
    server.books.note("upload")
    if was_there and overwrite and not data:
        server.books.emptied(kind, subfolder, name, request.headers.get("User-Agent", ""))
    return said({"name": name, "subfolder": subfolder, "type": kind})


def _store(folder: Path, name: str, data: bytes, overwrite: bool) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    stem, ending = os.path.splitext(name)
    count = 1
    while not overwrite and path.exists():
        if hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest():
            return path.name
        path = folder / f"{stem} ({count}){ending}"
        count += 1
    path.write_bytes(data)
    return path.name


def _asked_file(request: web.Request) -> tuple[int, str, str, str, Path | None]:
    """Status, type, subfolder, name and path of what /view asks for."""
    name = request.query.get("filename")
    if name is None:
        return 404, "", "", "", None
    kind = request.query.get("type", "output")
    for known in KINDS:
        if name.endswith(f" [{known}]"):
            name, kind = name[: -len(known) - 3], known
    if not name or name.startswith("/") or ".." in name or kind not in KINDS:
        return 400, "", "", "", None
    subfolder = request.query.get("subfolder", "")
    path = request.app[SERVER].folders.inside(kind, subfolder, os.path.basename(name))
    if path is None:
        return 403, "", "", "", None
    return (200, kind, subfolder, path.name, path) if path.is_file() else (404, "", "", "", None)


async def view(request: web.Request) -> web.StreamResponse:
    """`GET /view`: a file, or a re-encoded one; what a browser would run is sent as an attachment."""
    server = request.app[SERVER]
    spoiled = request.query.get("type") != "temp"  # the knobs are about results, not about a client's own marks
    if spoiled and server.knobs.take("view_fail") is not None:
        return trouble()
    if spoiled and server.knobs.take("view_missing") is not None:
        return web.Response(status=404)
    status, kind, subfolder, name, path = _asked_file(request)
    if path is None:
        return web.Response(status=status)
    server.books.viewed(kind, subfolder, name)
    headers = {"Content-Disposition": f'filename="{name}"'}
    if "preview" in request.query or "channel" in request.query:
        encoded, content_type = await asyncio.to_thread(_reencoded, path, request.query)
        return web.Response(body=encoded, content_type=content_type, headers=headers)
    content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers["X-Content-Type-Options"] = "nosniff"
    if content_type in ACTIVE_TYPES:
        content_type = "application/octet-stream"
        headers |= {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        headers["Vary"] = "Sec-Fetch-Dest"
    headers["Content-Type"] = content_type
    if spoiled and server.knobs.take("view_empty") is not None:
        return web.Response(body=b"", headers=headers)
    if spoiled and server.knobs.take("view_truncated") is not None:
        return await _truncated(request, path, headers)
    return web.FileResponse(path, headers=headers)


async def _truncated(request: web.Request, path: Path, headers: dict[str, str]) -> web.StreamResponse:
    data = await asyncio.to_thread(path.read_bytes)
    answer = web.StreamResponse(headers=headers)
    answer.content_length = len(data)
    await answer.prepare(request)
    await answer.write(data[: len(data) // 2])
    await cut(request)
    return answer


def _reencoded(path: Path, query: Any) -> tuple[bytes, str]:
    buffer = io.BytesIO()
    with Image.open(path) as image:
        if "preview" in query:
            kind, _, quality = query["preview"].partition(";")
            kind = kind if kind in ("webp", "jpeg") else "webp"
            image.convert("RGB").save(buffer, kind, quality=int(quality) if quality.isdecimal() else 90)
            return buffer.getvalue(), f"image/{kind}"
        if query["channel"] == "a":
            alpha = image.convert("RGBA").getchannel("A")
            Image.merge("RGBA", (*[Image.new("L", image.size, 0)] * 3, alpha)).save(buffer, "PNG")
        else:
            image.convert("RGB" if query["channel"] == "rgb" else "RGBA").save(buffer, "PNG")
    return buffer.getvalue(), "image/png"


async def object_info(request: web.Request) -> web.Response:
    """`GET /object_info`."""
    server = request.app[SERVER]
    return said(server.catalog.all_object_info(server.folders.input_files()))


async def object_info_of(request: web.Request) -> web.Response:
    """`GET /object_info/NODE`: `{}` for an unknown node."""
    server = request.app[SERVER]
    return said(server.catalog.object_info(request.match_info["node"], server.folders.input_files()))


async def system_stats(request: web.Request) -> web.Response:
    """`GET /system_stats`: the recorded shape; the device says that it is simulated."""
    server = request.app[SERVER]
    old, memory = server.options.old, server.boot.bench.memory
    system = {
        "os": "linux",
        "ram_total": 64 * GIB,
        "ram_free": 48 * GIB,
        "comfyui_version": "0.3.64" if old else "0.33.0",
        "required_frontend_version": "1.49.6",
        "installed_templates_version": None,
        "required_templates_version": "0.11.44",
        "comfy_package_versions": [],
        "python_version": "3.11.7",
        "pytorch_version": "2.13.0",
        "embedded_python": False,
        "deploy_environment": "local-git",
        "argv": ["main.py", "--simulated"],
    }
    device = {
        "name": "SIMULATED",
        "type": "cuda",
        "index": 0,
        "vram_total": memory.total,
        "vram_free": max(0, memory.free),
        "torch_vram_total": memory.total,
        "torch_vram_free": max(0, memory.free),
    }
    return said({"system": system, "devices": [device]})


async def features(request: web.Request) -> web.Response:
    """`GET /features`."""
    return said(FEATURES)


async def models(request: web.Request) -> web.Response:
    """`GET /models`."""
    known = request.app[SERVER].catalog.models
    return said([*FOLDERS, *(folder for folder in known if folder not in FOLDERS)])


async def models_of(request: web.Request) -> web.Response:
    """`GET /models/FOLDER`: 404 for an unknown folder."""
    folder = request.match_info["folder"]
    known = request.app[SERVER].catalog.models
    if folder not in known and folder not in FOLDERS:
        return web.Response(status=404)
    return said(list(known.get(folder, [])))


async def embeddings(request: web.Request) -> web.Response:
    """`GET /embeddings`."""
    return said([])


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/upload/image", upload),
    ("POST", "/upload/mask", upload),
    ("GET", "/view", view),
    ("GET", "/object_info", object_info),
    ("GET", "/object_info/{node}", object_info_of),
    ("GET", "/system_stats", system_stats),
    ("GET", "/features", features),
    ("GET", "/models", models),
    ("GET", "/models/{folder}", models_of),
    ("GET", "/embeddings", embeddings),
]
