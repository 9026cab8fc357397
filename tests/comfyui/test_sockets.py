"""The WebSocket's rules, its mistakes included (docs/design/comfyui.md, section 2)."""

from __future__ import annotations

import asyncio
import base64
import os
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.comfyui import Wire, long_graph, noise_png, three_nodes


async def test_the_first_message_names_the_socket(wire: Wire) -> None:
    """F2.1."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as named, wire.socket() as nameless:
        status = {"exec_info": {"queue_remaining": 0}}
        assert named.heard == [{"type": "status", "data": {"status": status, "sid": client_id}}]
        assert len(nameless.heard[0]["data"]["sid"]) == 32


async def test_feature_flags_are_answered_and_garbage_is_not(wire: Wire) -> None:
    """F2.9 and F2.10."""
    async with wire.socket(str(uuid.uuid4())) as socket:
        await socket.socket.send_json({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
        reply = await socket.next()
        assert (reply["type"], reply["data"]["supports_preview_metadata"]) == ("feature_flags", True)
        await socket.socket.send_str("garbage")
        await socket.socket.send_bytes(b"\0\1")
        await socket.socket.send_json(["list"])
        prompt_id = await wire.queue(three_nodes())
        await socket.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert (await wire.entry(prompt_id))["status"]["completed"] is True


async def test_whoever_connects_in_mid_run_is_told_the_node_without_a_prompt_id(wire: Wire) -> None:
    """F2.7."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as first:
        prompt_id = await wire.queue(long_graph(), client_id=client_id)
        await first.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "2")
    async with wire.socket(str(uuid.uuid4())) as stranger, wire.socket(client_id) as second:
        told = await second.next()
        assert told["type"] == "executing"
        assert list(told["data"]) == ["node"]
        await second.ended(prompt_id)
        await stranger.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert {event["type"] for event in stranger.heard} == {"status"}
    async with wire.socket(client_id) as third:
        assert await third.silent()


async def test_a_second_socket_takes_over_and_the_first_ones_end_orphans_it(wire: Wire) -> None:
    """F2.6."""
    client_id = str(uuid.uuid4())
    async with wire.socket(str(uuid.uuid4())) as watcher, wire.socket(client_id) as second:
        first = await wire.session.ws_connect(f"{wire.url}/ws?clientId={client_id}")
        await first.receive_json()
        # The second socket of the table is now `first`; `second` hears nothing more, not even of the queue.
        prompt_id = await wire.queue(three_nodes(), client_id=client_id)
        await watcher.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert await second.silent()
        heard = [await first.receive_json() for _ in range(3)]
        assert heard[-1]["type"] in ("execution_start", "status")
        # When the older one closes, its clean-up removes the newer one's entry.
        await second.socket.close()
        assert await wire.get(f"/history/{prompt_id}")
        while (message := await first.receive()).json() != {
            "type": "executing", "data": {"node": None, "prompt_id": prompt_id},
        }:  # fmt: skip
            assert message.type.name == "TEXT"
        next_id = await wire.queue(three_nodes(), client_id=client_id)
        await watcher.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert (await wire.entry(next_id))["status"]["completed"] is True
        assert first.closed is False
        assert not await _hears(first)
        await first.close()


async def _hears(socket: object) -> bool:
    try:
        await socket.receive(timeout=0.3)  # type: ignore[attr-defined]
    except TimeoutError:
        return False
    return True


async def test_the_prefixed_socket_is_the_same(wire: Wire) -> None:
    """F1.17."""
    async with wire.session.ws_connect(f"{wire.url}/api/ws?clientId=x") as socket:
        assert (await socket.receive_json())["data"]["sid"] == "x"


async def test_an_interruption_without_client_id_is_broadcast(wire: Wire) -> None:
    """F2.5."""
    async with wire.socket(str(uuid.uuid4())) as socket:
        prompt_id = await wire.queue(long_graph())
        await socket.until(lambda event: event["type"] == "progress_state" and "2" in event["data"]["nodes"])
        await wire.ask("POST", "/interrupt", json={})
        heard = await socket.until(lambda event: event["type"] == "execution_interrupted")
        assert heard[-1]["data"]["prompt_id"] == prompt_id


async def test_one_socket_that_does_not_read_holds_up_everybodys_events(wire: Wire) -> None:
    """F2.8."""
    await wire.upload(noise_png(1800), "noise.png", overwrite="1")
    frames: dict[str, Any] = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["2", 0]}},
        "4": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}},
    }
    address = urlsplit(wire.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1024)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /ws?clientId=stalled HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    async with wire.socket(str(uuid.uuid4())) as socket:
        stalled = await wire.queue(frames, client_id="stalled")
        await wire.polled(stalled)
        # HTTP goes on and prompts run, but nobody hears of them.
        prompt_id, other = str(uuid.uuid4()), "other"
        async with wire.socket(other) as listener:
            await wire.post(three_nodes(), prompt_id, client_id=other)
            await wire.polled(prompt_id)
            with pytest.raises(TimeoutError):
                await listener.ended(prompt_id, 0.5)
            writer.transport.abort()
            await socket.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})


async def test_a_picture_for_the_socket_is_a_binary_frame_and_leaves_no_output(wire: Wire) -> None:
    """F2.9."""
    graph = three_nodes()
    graph["3"] = {"class_type": "SaveImageWebsocket", "inputs": {"images": ["2", 0]}}
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        prompt_id = await wire.queue(graph, client_id=client_id)
        heard = await socket.ended(prompt_id)
    (frame,) = [event["data"] for event in heard if event["type"] == "binary"]
    assert frame[:16] == b"\0\0\0\1" + b"\0\0\0\2" + b"\x89PNG\r\n\x1a\n"
    entry = await wire.entry(prompt_id)
    assert (entry["status"]["completed"], entry["outputs"]) == (True, {})
