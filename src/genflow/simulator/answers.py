"""Answers in ComfyUI's form, shared by all routes."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from genflow.simulator.server import SimulatedServer

SERVER: web.AppKey[SimulatedServer] = web.AppKey("server")

CSP = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self' data:; frame-src 'self'; object-src 'self';"
)
"""The header that a default server sends with every answer."""

_dumps = functools.partial(json.dumps, ensure_ascii=True)


def said(body: Any, status: int = 200) -> web.Response:
    """A JSON answer; NaN and Infinity go out as literals, as they do there."""
    return web.json_response(body, status=status, dumps=_dumps)


def trouble() -> web.Response:
    """What aiohttp says when a handler raised."""
    answer = web.Response(status=500, text="500 Internal Server Error\n\nServer got itself in trouble")
    answer.force_close()
    return answer


async def cut(request: web.Request) -> web.Response:
    """Cut the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
