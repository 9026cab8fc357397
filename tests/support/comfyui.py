"""A plain client for the wire of a ComfyUI server, simulated or real: what the wire tests speak through."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from genflow.simulator import SimulatedServer, SimulatorOptions, running

Event = dict[str, Any]

UNIT = Path(__file__).resolve().parent.parent / "unit" / "recordings" / "simulator"


def recorded(name: str) -> list[dict[str, Any]]:
    """The rows of a recording that was cut for these tests."""
    rows: list[dict[str, Any]] = json.loads((UNIT / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def three_nodes(prefix: str = "wire/ok", colour: int | None = None) -> dict[str, Any]:
    """EmptyImage, ImageInvert, SaveImage: the smallest graph that writes a file. The colour is fresh unless given."""
    colour = uuid.uuid4().int % 0xFFFFFF if colour is None else colour
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 48, "batch_size": 1, "color": colour}},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": prefix}},
    }


def long_graph(prefix: str = "wire/long") -> dict[str, Any]:
    """A graph that keeps a server busy for about a second: large blurs one after another, never cached."""
    colour = uuid.uuid4().int % 0xFFFFFF
    sizes = {"width": 1024, "height": 1024, "batch_size": 1, "color": colour}
    graph: dict[str, Any] = {"1": {"class_type": "EmptyImage", "inputs": sizes}}
    for node in range(2, 6):
        blur = {"image": [str(node - 1), 0], "blur_radius": 31, "sigma": 5.0 + node / 10}
        graph[str(node)] = {"class_type": "ImageBlur", "inputs": blur}
    graph["9"] = {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": prefix}}
    return graph


def png(width: int = 16, height: int = 12, colour: tuple[int, int, int] = (200, 60, 40)) -> bytes:
    """A small picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


def noise_png(side: int) -> bytes:
    """A square picture that no compression makes small: three bytes a pixel."""
    buffer = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


class Socket:
    """One WebSocket; keeps everything that it heard."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.heard: list[Event] = []

    async def next(self, timeout_s: float = 20.0) -> Event:
        """The next message; a binary one is `{"type": "binary", "data": bytes}`, the end `{"type": "closed"}`."""
        message = await self.socket.receive(timeout_s)
        if message.type is aiohttp.WSMsgType.TEXT:
            event: Event = json.loads(message.data)
        elif message.type is aiohttp.WSMsgType.BINARY:
            event = {"type": "binary", "data": message.data}
        else:
            event = {"type": "closed"}
        self.heard.append(event)
        return event

    async def until(self, matches: Callable[[Event], bool], timeout_s: float = 20.0) -> list[Event]:
        """Everything heard from now up to the first message that matches. Raises TimeoutError."""
        start = len(self.heard)
        async with asyncio.timeout(timeout_s):
            while not matches(await self.next(timeout_s)):
                pass
        return self.heard[start:]

    async def ended(self, prompt_id: str, timeout_s: float = 20.0) -> list[Event]:
        """Everything up to the `executing` without a node that ends a prompt."""
        return await self.until(
            lambda event: event["type"] == "executing" and event["data"] == {"node": None, "prompt_id": prompt_id},
            timeout_s,
        )

    async def silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing at all is heard for a while."""
        with contextlib.suppress(TimeoutError):
            await self.next(seconds)
            return False
        return True


class Wire:
    """One server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and body, as JSON if it is that."""
        async with self.session.request(method, self.url + path, **options) as reply:
            raw = await reply.read()
            if reply.content_type == "application/json":
                return reply.status, json.loads(raw)
            return reply.status, raw.decode("utf-8", "replace") if reply.content_type.startswith("text/") else raw

    async def get(self, path: str, **options: Any) -> Any:
        """The body of a GET that must be a 200."""
        status, body = await self.ask("GET", path, **options)
        assert status == 200, (path, status, body)
        return body

    async def post(self, graph: Any, prompt_id: str | None = None, **fields: Any) -> tuple[int, Any]:
        """POST /prompt."""
        body = {"prompt": graph, **fields}
        if prompt_id is not None:
            body["prompt_id"] = prompt_id
        return await self.ask("POST", "/prompt", json=body)

    async def queue(self, graph: Any, **fields: Any) -> str:
        """POST /prompt with a fresh id, which must be accepted; gives the id."""
        prompt_id = str(uuid.uuid4())
        status, body = await self.post(graph, prompt_id, **fields)
        assert status == 200, body
        return prompt_id

    async def entry(self, prompt_id: str) -> dict[str, Any]:
        """The history entry, which must be there."""
        history = await self.get(f"/history/{prompt_id}")
        entry: dict[str, Any] = history[prompt_id]
        return entry

    async def polled(self, prompt_id: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The history entry of a prompt whose events cannot be heard, asked for again and again."""
        async with asyncio.timeout(timeout_s):
            while True:
                history: dict[str, dict[str, Any]] = await self.get(f"/history/{prompt_id}")
                if history:
                    return history[prompt_id]

    async def run(self, graph: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
        """Queue, wait for the end, and give id and history entry."""
        client_id = fields.setdefault("client_id", str(uuid.uuid4()))
        async with self.socket(client_id) as socket:
            prompt_id = await self.queue(graph, **fields)
            await socket.ended(prompt_id)
        return prompt_id, await self.entry(prompt_id)

    @contextlib.asynccontextmanager
    async def socket(self, client_id: str | None = None) -> AsyncIterator[Socket]:
        """An open WebSocket that has heard its greeting."""
        query = "" if client_id is None else f"?clientId={client_id}"
        async with self.session.ws_connect(f"{self.url}/ws{query}", max_msg_size=0) as socket:
            opened = Socket(socket)
            await opened.next()
            yield opened

    async def upload(self, data: bytes, name: str, **fields: str) -> tuple[int, Any]:
        """POST /upload/image with the name as it is."""
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("image", io.BytesIO(data), filename=name, content_type="image/png")
        for key, value in fields.items():
            form.add_field(key, value)
        return await self.ask("POST", "/upload/image", data=form)

    async def knobs(self, **knobs: Any) -> None:
        """Set knobs of a simulated server."""
        status, body = await self.ask("POST", "/simulator/knobs", json=knobs)
        assert status == 200, body

    async def happened(self, event: str, prompt_id: str | None = None, count: int = 1, timeout_s: float = 20.0) -> int:
        """Wait until the simulator's books show an event. Gives how often."""
        query = {"event": event, "count": str(count), "timeout": str(timeout_s)}
        if prompt_id is not None:
            query["prompt"] = prompt_id
        body = await self.get("/simulator/wait", params=query)
        return int(body["count"])

    async def book(self, prompt_id: str) -> dict[str, Any]:
        """The simulator's book of one prompt."""
        books = await self.get("/simulator/books")
        book: dict[str, Any] = books["prompts"][prompt_id]
        return book


def told(events: list[Event], *, statuses: bool = False) -> list[Event]:
    """Events without their timestamps, and without `status` unless asked for: what can be compared."""
    kept = []
    for event in events:
        if event["type"] == "status" and not statuses:
            continue
        data = event["data"]
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if key != "timestamp"}
        kept.append({"type": event["type"], "data": data})
    return kept


@contextlib.asynccontextmanager
async def simulated(**options: Any) -> AsyncIterator[tuple[Wire, SimulatedServer]]:
    """One simulated server in this process, quick unless told otherwise, and a client for it."""
    quick: dict[str, Any] = {"seconds_per_step": 0.005, "seconds_per_megapixel": 0.0}
    async with (
        running(SimulatorOptions(**(quick | options))) as (server, *_),
        aiohttp.ClientSession() as session,
    ):
        yield Wire(session, server.url), server
