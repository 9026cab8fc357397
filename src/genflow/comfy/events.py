"""The events of one ComfyUI WebSocket: hints for progress, never a proof of anything.

Events are lost while a socket is down, a socket may stay open and silent, and one socket that isn't read stops the
events of everybody: so this side always reads, and where its own reader is too slow it drops the oldest.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal
from uuid import UUID

import aiohttp

from genflow.comfy.access import OPEN, Access
from genflow.comfy.errors import ServerAnswered, ServerUnreachable
from genflow.errors import clean_text
from genflow.outputs import Output, walk_outputs

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
HEARTBEAT_S = 15.0
CLOSE_S = 2.0
KEPT_EVENTS = 256
KEPT_BYTES = MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Event:
    """Something told on the socket. `job_id` is the prompt it is about, None where the message names none."""

    job_id: UUID | None


@dataclass(frozen=True, slots=True)
class QueueDepth(Event):
    """How many prompts the server holds, pending and running. Goes to every socket."""

    remaining: int


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The prompt began to execute."""


@dataclass(frozen=True, slots=True)
class NodesCached(Event):
    """These nodes will not run: their results are kept from before."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """A node began. After a reconnect in mid-run it comes without a job id."""

    node_id: str


@dataclass(frozen=True, slots=True)
class StepProgress(Event):
    """A node's own progress: `value` of `maximum` steps."""

    node_id: str
    value: float
    maximum: float


@dataclass(frozen=True, slots=True)
class NodeStates(Event):
    """Every node begun so far: node id to (state, value, maximum). A failing node stays "running"."""

    nodes: dict[str, tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class NodeFinished(Event):
    """An output node finished with these outputs."""

    node_id: str
    outputs: list[Output]


@dataclass(frozen=True, slots=True)
class Preview(Event):
    """A picture from inside the run. Without job and node id it belongs to whatever runs."""

    node_id: str | None
    content_type: str
    image: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run ended; only now is it worth a poll.

    `outcome` is None for the last message of a run, which follows every kind of end and comes after the history entry
    exists (`settled`); the message that names the outcome comes up to some milliseconds before the entry.
    """

    outcome: Literal["success", "error", "interrupted"] | None
    settled: bool


_ENDS: dict[str, Literal["success", "error", "interrupted"]] = {
    "execution_success": "success",
    "execution_error": "error",
    "execution_interrupted": "interrupted",
}


def parse_text(raw: str) -> Event | None:
    """The event in a text message; None for one that is unknown or malformed."""
    try:
        message = json.loads(raw)
        return _event(message["type"], message["data"])
    except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _event(kind: str, data: dict[str, Any]) -> Event | None:
    if kind == "status":
        return QueueDepth(None, int(data["status"]["exec_info"]["queue_remaining"]))
    job_id = _uuid(data.get("prompt_id"))
    if kind in _ENDS:
        return RunEnded(job_id, _ENDS[kind], settled=False)
    match kind:
        case "execution_start":
            return RunStarted(job_id)
        case "execution_cached":
            return NodesCached(job_id, tuple(_name(node) for node in data["nodes"]))
        case "executing" if data["node"] is None:
            return RunEnded(job_id, None, settled=True)
        case "executing":
            return NodeStarted(job_id, _name(data["node"]))
        case "progress":
            return StepProgress(job_id, _name(data["node"]), _number(data["value"]), _number(data["max"]))
        case "progress_state":
            states = {
                _name(node): (_name(told["state"]), _number(told["value"]), _number(told["max"]))
                for node, told in data["nodes"].items()
            }
            return NodeStates(job_id, states)
        case "executed":
            return NodeFinished(job_id, _name(data["node"]), walk_outputs({data["node"]: data["output"]}))
        case _:
            return None


_IMAGE_TYPES = {1: "image/jpeg", 2: "image/png"}


def parse_binary(raw: bytes) -> Event | None:
    """The preview in a binary message (big-endian event 1: image type and image; 4: JSON and image), else None."""
    event, rest = int.from_bytes(raw[:4], "big"), raw[4:]
    if event == 1 and len(rest) > 4:
        content_type = _IMAGE_TYPES.get(int.from_bytes(rest[:4], "big"))
        return None if content_type is None else Preview(None, None, content_type, rest[4:])
    if event == 4 and len(rest) > 4:
        size = int.from_bytes(rest[:4], "big")
        try:
            told = json.loads(rest[4 : 4 + size])
            content_type, node = str(told["image_type"]), told.get("node_id")
            job_id = _uuid(told.get("prompt_id"))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return None
        if content_type not in _IMAGE_TYPES.values():
            return None
        return Preview(job_id, None if node is None else _name(node), content_type, rest[4 + size :])
    return None


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None


def _number(value: Any) -> float:
    """A finite number. ValueError for NaN and Infinity, which ComfyUI writes and nobody could show."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _name(value: Any) -> str:
    return clean_text(str(value), 200)


class EventStream:
    """One open WebSocket: `async for event in stream` until it closes.

    At most `KEPT_EVENTS` events and `KEPT_BYTES` of pictures wait to be read; past that the oldest are dropped, so that
    the last one, which may tell of the end, is always there.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._kept: deque[Event] = deque()
        self._kept_bytes = 0
        self._arrived = asyncio.Event()
        self._closed = False
        self.dropped = 0
        """How many events were dropped because nobody read them in time."""
        self._reader = asyncio.create_task(self._read())

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether our side has seen the socket close: only then may its client id be used again."""
        return self._closed

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises StopAsyncIteration once the socket has closed and all that came was read."""
        while not self._kept:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event = self._kept.popleft()
        self._kept_bytes -= _size(event)
        return event

    async def close(self) -> None:
        """Close the socket politely, for at most `CLOSE_S` seconds, and wait until our side has seen it gone."""
        await self._socket.close()
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                event: Event | None = None
                if message.type is aiohttp.WSMsgType.TEXT:
                    event = parse_text(message.data)
                elif message.type is aiohttp.WSMsgType.BINARY:
                    event = parse_binary(message.data)
                if event is not None:
                    self._keep(event)
        except (aiohttp.ClientError, OSError):
            pass  # A socket that breaks is a socket that closed: events are hints.
        finally:
            self._closed = True
            self._arrived.set()

    def _keep(self, event: Event) -> None:
        self._kept.append(event)
        self._kept_bytes += _size(event)
        while len(self._kept) > KEPT_EVENTS or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= _size(self._kept.popleft())
            self.dropped += 1
        self._arrived.set()


def _size(event: Event) -> int:
    return len(event.image) if isinstance(event, Preview) else 0


async def open_stream(session: aiohttp.ClientSession, url: str, client_id: str, access: Access = OPEN) -> EventStream:
    """Open the WebSocket of `client_id` and ask for previews that name their node. The caller sets the time limit.

    Raises ServerUnreachable or ServerAnswered.
    """
    try:
        socket = await session.ws_connect(
            f"{url}/ws",
            params={"clientId": client_id},
            headers=access.headers,
            ssl=access.ssl,
            max_msg_size=MAX_MESSAGE_BYTES,
            heartbeat=HEARTBEAT_S,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
        )
    except aiohttp.WSServerHandshakeError as error:
        raise ServerAnswered(error.status, error.message) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ServerUnreachable(f"no WebSocket: {error or type(error).__name__}") from error
    try:
        await socket.send_json({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
    except (aiohttp.ClientError, OSError) as error:
        await socket.close()
        raise ServerUnreachable(f"the WebSocket closed at once: {error or type(error).__name__}") from error
    return EventStream(socket)
