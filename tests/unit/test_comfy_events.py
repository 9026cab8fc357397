"""The WebSocket: recorded messages become events, and a bad socket never hurts anybody but itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web

from genflow.comfy import (
    Event,
    NodeFinished,
    NodesCached,
    NodeStarted,
    NodeStates,
    Preview,
    QueueDepth,
    RunEnded,
    RunStarted,
    ServerAnswered,
    ServerUnreachable,
    StepProgress,
)
from genflow.comfy import events as module
from genflow.comfy.events import parse_binary, parse_text
from genflow.outputs import Output
from tests.unit import recorded
from tests.unit.wire import Conversation, Double, client, double, peer

JOB = UUID("95ea73c5-d54f-4a12-bc7e-df1ed74f0466")
IMAGE = b"\xff\xd8\xff\xe0picture"


def parsed(name: str) -> list[Event | None]:
    return [parse_text(json.dumps(message)) for message in recorded.socket(name)]


def test_a_recorded_run_is_told_from_start_to_end() -> None:
    told = [event for event in parsed("success") if not isinstance(event, NodeStates)]
    assert told == [
        QueueDepth(None, 0),
        QueueDepth(None, 1),
        QueueDepth(None, 1),
        RunStarted(JOB),
        NodesCached(JOB, ()),
        NodeStarted(JOB, "1"),
        NodeStarted(JOB, "2"),
        NodeStarted(JOB, "3"),
        NodeFinished(JOB, "3", [Output("3", "images", 0, "ok_00001_.png", "rec", "output")]),
        RunEnded(JOB, "success", settled=False),
        QueueDepth(None, 0),
        RunEnded(JOB, None, settled=True),
    ]
    states = [event for event in parsed("success") if isinstance(event, NodeStates)]
    assert states[1] == NodeStates(JOB, {"1": ("finished", 1.0, 1.0)})
    assert states[2] == NodeStates(JOB, {"1": ("finished", 1.0, 1.0), "2": ("running", 0.0, 1.0)})


def test_error_and_interruption_end_a_run_too() -> None:
    job_id = UUID("14f62a91-dffc-482d-bace-37e1d88e7d31")
    assert parsed("error") == [
        RunEnded(job_id, "error", settled=False),
        QueueDepth(None, 0),
        RunEnded(job_id, None, settled=True),
    ]
    (interrupted,) = parsed("interrupted")
    assert isinstance(interrupted, RunEnded)
    assert interrupted.outcome == "interrupted"


def test_steps_of_a_node() -> None:
    assert parsed("progress") == [StepProgress(UUID("1c84e1a9-be78-4a4e-99b1-d52344cae96d"), "2", 1.0, 12.0)]


def test_after_a_reconnect_the_running_node_comes_without_its_job() -> None:
    assert parsed("reconnect") == [QueueDepth(None, 1), NodeStarted(None, "2")]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "x",
        "[]",
        "null",
        "[" * 100_000,
        "{}",
        '{"type": "executing"}',
        '{"type": "executing", "data": null}',
        '{"type": "status", "data": {"status": null}}',
        '{"type": "progress", "data": {"node": "1", "value": "many", "max": 3}}',
        '{"type": "progress", "data": {"node": "1", "value": NaN, "max": 3}}',
        '{"type": "progress", "data": {"node": "1", "value": 1, "max": 1e999}}',
        '{"type": "progress", "data": {"node": "1", "value": 1, "max": 1' + "0" * 400 + "}}",
        '{"type": "progress_state", "data": {"nodes": {"1": {"state": "running", "value": NaN, "max": 3}}}}',
        '{"type": "progress_state", "data": {"nodes": []}}',
        '{"type": "feature_flags", "data": {}}',
        '{"type": "crystools.monitor", "data": {"cpu": 3}}',
    ],
    ids=lambda raw: str(raw)[:40],
)
def test_what_is_unknown_or_malformed_is_passed_over(raw: str) -> None:
    assert parse_text(raw) is None


def test_both_kinds_of_preview() -> None:
    plain, named = recorded.socket("previews")
    first = bytes.fromhex(plain["head_hex"])
    assert parse_binary(first) == Preview(None, None, "image/jpeg", first[8:])
    assert parse_binary(b"\0\0\0\1\0\0\0\2" + IMAGE) == Preview(None, None, "image/png", IMAGE)
    told = json.dumps(named["metadata"]).encode()
    assert bytes.fromhex(named["head_hex"])[:4] == b"\0\0\0\4"
    job_id = UUID(named["metadata"]["prompt_id"])
    raw = b"\0\0\0\4" + len(told).to_bytes(4, "big") + told + IMAGE
    assert parse_binary(raw) == Preview(job_id, "2", "image/jpeg", IMAGE)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0\1",
        b"\0\0\0\1\0\0\0\1",
        b"\0\0\0\1\0\0\0\7" + IMAGE,
        b"\0\0\0\3\0\0\0\1xtext",
        b"\0\0\0\4\xff\xff\xff\xff{}",
        b"\0\0\0\4\0\0\0\2{}" + IMAGE,
        b'\0\0\0\4\0\0\0\x1b{"image_type": "text/html"}' + IMAGE,
    ],
)
def test_a_binary_message_that_is_no_preview_is_passed_over(raw: bytes) -> None:
    assert parse_binary(raw) is None


Serve = Callable[[web.WebSocketResponse], Coroutine[Any, Any, None]]


def serving(made: Double, serve: Serve) -> None:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        made.asked.append(f"clientId={request.query['clientId']}")
        with contextlib.suppress(ConnectionError):
            await serve(socket)
        return socket

    made.answers["GET /ws"] = handle


def executing(node: str | None) -> dict[str, Any]:
    return {"type": "executing", "data": {"node": node, "prompt_id": str(JOB)}}


async def test_a_stream_asks_for_named_previews_and_tells_until_the_socket_closes() -> None:
    said: list[Any] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        said.append(await socket.receive_json())
        await socket.send_str("garbage")
        await socket.send_json(executing("1"))
        await socket.send_bytes(b"\0\0\0\1\0\0\0\1" + IMAGE)
        await socket.send_json(executing(None))
        await socket.close()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            told = [event async for event in events]
        assert told == [
            NodeStarted(JOB, "1"),
            Preview(None, None, "image/jpeg", IMAGE),
            RunEnded(JOB, None, settled=True),
        ]
        assert events.closed
        assert said == [{"type": "feature_flags", "data": {"supports_preview_metadata": True}}]
        assert made.asked == ["GET /ws", "clientId=c-1"]


async def test_a_socket_that_breaks_ends_the_stream_quietly() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json(executing("1"))
        transport = socket._req.transport if socket._req is not None else None
        assert transport is not None
        transport.abort()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            assert [event async for event in events] in ([NodeStarted(JOB, "1")], [])
            assert events.closed


async def test_leaving_closes_the_socket_on_the_servers_side_before_it_returns() -> None:
    closed = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            pass
        closed.set()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            assert not events.closed
        assert events.closed
        assert closed.is_set()


async def test_a_second_socket_of_the_same_client_id_is_refused_while_the_first_is_open() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            pass

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1"):
            with pytest.raises(RuntimeError, match="c-1 has a socket already"):
                async with made.client.watch("c-1"):
                    pass
            async with made.client.watch("c-2"):
                pass
        async with made.client.watch("c-1"):
            pass
        assert made.asked.count("clientId=c-1") == 2


async def test_a_reader_too_slow_loses_the_oldest_and_keeps_the_end() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for n in range(module.KEPT_EVENTS * 2):
            await socket.send_json(executing(str(n)))
        await socket.send_json(executing(None))
        await socket.close()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            await asyncio.wait([events._reader])
            told = [event async for event in events]
        assert len(told) == module.KEPT_EVENTS
        assert events.dropped == module.KEPT_EVENTS + 1
        assert told[-1] == RunEnded(JOB, None, settled=True)


async def test_pictures_waiting_to_be_read_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 100_000)

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for _ in range(10):
            await socket.send_bytes(b"\0\0\0\1\0\0\0\1" + b"x" * 40_000)
        await socket.close()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            await asyncio.wait([events._reader])
            assert len([event async for event in events]) == 2


async def test_a_message_past_the_limit_ends_the_stream_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 10_000)

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_bytes(b"\0\0\0\1\0\0\0\1" + b"x" * 40_000)
        await socket.receive()

    async with double() as made:
        serving(made, serve)
        async with made.client.watch("c-1") as events:
            assert [event async for event in events] == []


async def test_a_server_that_never_pongs_is_seen_as_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        while (await socket.receive()).type != aiohttp.WSMsgType.CLOSED:
            pass
        return socket

    async with double() as made:
        made.answers["GET /ws"] = handle
        async with asyncio.timeout(20), made.client.watch("c-1") as events:
            assert [event async for event in events] == []
            assert events.closed


async def test_a_close_that_nobody_answers_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    leave = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        await leave.wait()

    async with double() as made:
        serving(made, serve)
        async with asyncio.timeout(20):
            async with made.client.watch("c-1") as events:
                pass
            assert events.closed
        leave.set()


@pytest.mark.parametrize("status", [200, 403, 404, 500, 502])
async def test_a_server_that_opens_no_socket_is_told(status: int) -> None:
    async with double() as made:
        made.answers["GET /ws"] = (status, b"<html>")
        for _ in range(2):
            with pytest.raises(ServerAnswered) as raised:
                async with made.client.watch("c-1"):
                    pass
            assert raised.value.status == status


async def test_a_server_that_is_gone_is_unreachable() -> None:
    async def talk(one: Conversation) -> None:
        one.abort()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(ServerUnreachable):
            async with comfy.watch("c-1"):
                pass


async def test_opening_can_be_limited_by_the_caller_and_tried_again() -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()

    async with peer(talk) as made, client(made.url) as comfy:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), comfy.watch("c-1"):
                    pass
