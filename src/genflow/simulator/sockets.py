"""ComfyUI's WebSockets: one table by client id, one publisher, and the mistakes in both.

As recorded (docs/design/comfyui.md, section 2): a second socket of one client id takes over silently; when the old one
then closes, its clean-up removes the new one's entry; one peer that does not read stops the events of everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from genflow.simulator.knobs import Knobs

FEATURES: dict[str, Any] = {
    "supports_preview_metadata": True,
    "supports_model_type_tags": True,
    "max_upload_size": 104_857_600,
    "extension": {"manager": {"supports_v4": True}},
    "node_replacements": True,
    "assets": False,
}

Message = tuple[str, Any, Any]
"""Event, data, client id (None means everybody)."""

PREVIEW = "preview"


class Sockets:
    """The sockets of one boot and the loop that feeds them."""

    def __init__(self, knobs: Knobs, rng: random.Random, died: Callable[[], None]) -> None:
        self.table: dict[str, web.WebSocketResponse] = {}
        self.features: dict[str, dict[str, Any]] = {}
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._knobs = knobs
        self._rng = rng
        self._died = died
        self._kept: dict[Any, Message] = {}
        self._paused_until = 0.0

    def send(self, event: str, data: Any, sid: Any = None) -> None:
        """Queue a message for one client, or for all when `sid` is None."""
        if self._knobs.flag("cross_broadcast") and isinstance(sid, str):
            sid = None
        if self._knobs.flag("events_out_of_order") and isinstance(sid, str):
            # Each event of a client changes places with the next one.
            first = self._kept.pop(sid, None)
            if first is None and not (event == "executing" and data["node"] is None):
                self._kept[sid] = (event, data, sid)
                return
            self._messages.put_nowait((event, data, sid))
            if first is not None:
                self._messages.put_nowait(first)
            return
        self._messages.put_nowait((event, data, sid))

    def pause(self, seconds: float) -> None:
        """Send nothing for a while, as during a garbage collection that holds the interpreter."""
        self._paused_until = asyncio.get_running_loop().time() + seconds

    def adopt(self, sid: str, socket: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        """Enter a new socket; an older one of the same client id is forgotten but stays open."""
        self.table[sid] = socket
        self.features.pop(sid, None)
        if transport is not None:
            self._transports[socket] = transport

    def forget(self, sid: str, socket: web.WebSocketResponse) -> None:
        """A handler ended: remove the entry of its client id, whoever stands there by now (a bug of ComfyUI)."""
        self.table.pop(sid, None)
        self.features.pop(sid, None)
        self._transports.pop(socket, None)

    def abort(self, sid: Any) -> bool:
        """Cut the connection of a client's socket without a close frame."""
        socket = self.table.get(sid) if isinstance(sid, str) else None
        transport = self._transports.get(socket) if socket is not None else None
        if transport is None or transport.is_closing():
            return False
        transport.abort()
        return True

    def wants_metadata(self, sid: Any) -> bool:
        """Whether a client asked for previews with metadata in its first message."""
        return isinstance(sid, str) and bool(self.features.get(sid, {}).get("supports_preview_metadata"))

    async def publish(self) -> None:
        """Send one message after another, for ever; a full peer holds up everybody."""
        while True:
            event, data, sid = await self._messages.get()
            stall = self._knobs.take("socket_stall")
            if stall is not None:
                self.pause(stall["seconds"])
            await asyncio.sleep(max(0.0, self._paused_until - asyncio.get_running_loop().time()))
            if self._knobs.flag("socket_silent"):
                continue
            drop = self._knobs.get("socket_drop")
            if drop is not None and self._rng.uniform(0, 100) < drop["percent"] and self.abort(sid):
                self._knobs.take("socket_drop")
                continue
            try:
                targets = [self.table[each] for each in ([*self.table] if sid is None else [sid]) if each in self.table]
            except TypeError:
                # An unhashable client id ends ComfyUI's publish loop and with it the whole process.
                self._died()
                return
            for socket in targets:
                await self._deliver(socket, event, data)

    async def _deliver(self, socket: web.WebSocketResponse, event: str, data: Any) -> None:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, RuntimeError):
            if event == PREVIEW:
                await socket.send_bytes(data)
            else:
                await socket.send_json({"type": event, "data": data})

    async def serve(
        self, request: web.Request, first: Callable[[str], list[Message]], orphan: bool
    ) -> web.StreamResponse:
        """Handle one `/ws` connection until it ends. `first` gives the greeting of a client id."""
        socket = web.WebSocketResponse(max_msg_size=FEATURES["max_upload_size"])
        await socket.prepare(request)
        sid = request.query.get("clientId", "") or self._rng.randbytes(16).hex()
        self.adopt(sid, socket, request.transport)
        try:
            for event, data, _ in first(sid):
                await self._deliver(socket, event, data)
            if orphan:
                self.table.pop(sid, None)
            is_first = True
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._heard(socket, sid, message, is_first)
                    is_first = False
                elif message.type is aiohttp.WSMsgType.ERROR:
                    break
        finally:
            self.forget(sid, socket)
        return socket

    async def _heard(self, socket: web.WebSocketResponse, sid: str, message: aiohttp.WSMessage, is_first: bool) -> None:
        try:
            data = message.json()
            wanted = data["data"] if is_first and data.get("type") == "feature_flags" else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if isinstance(wanted, dict):
            self.features[sid] = wanted
            await self._deliver(socket, "feature_flags", FEATURES)


def plain_preview(jpeg: bytes) -> bytes:
    """Binary event 1: type 1 is JPEG. It has no prompt id."""
    return struct.pack(">II", 1, 1) + jpeg


def png_frame(png: bytes) -> bytes:
    """Binary event 1 with a PNG, as SaveImageWebsocket sends it."""
    return struct.pack(">II", 1, 2) + png


def preview_with_metadata(jpeg: bytes, metadata: bytes) -> bytes:
    """Binary event 4: the length of the metadata, the metadata, the picture."""
    return struct.pack(">II", 4, len(metadata)) + metadata + jpeg
