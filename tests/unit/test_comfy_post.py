"""POST /prompt on the wire: whatever breaks, the reply says no more than is certain, and nothing leaves late."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
import uvloop

from genflow.comfy import fresh
from genflow.protocol import PostReply, Reply
from tests.unit import recorded
from tests.unit.wire import Conversation, Peer, client, peer

JOB = UUID("95ea73c5-d54f-4a12-bc7e-df1ed74f0466")
BODY = json.dumps({"prompt_id": str(JOB), "prompt": {}}).encode()
RECEIPT = json.dumps({"prompt_id": str(JOB), "number": 4, "node_errors": {}}).encode()
LONG_BODY = b'"' + b"x" * 32_000_000 + b'"'
SERVER = "Server: Python/3.11 aiohttp/3.14.5"
FIVE_HUNDRED = recorded.reply("500")["body"].encode()

Talk = Callable[[Conversation], Awaitable[None]]


class Gate:
    """Says yes and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return True


async def post(
    url: str, body: bytes = BODY, *, timeout_s: float = 20.0, gate: Callable[[], bool] = lambda: True
) -> PostReply:
    async with client(url) as comfy:
        return await comfy.post(body, job_id=JOB, timeout_s=timeout_s, gate=gate)


def saying(status: str, body: bytes, *headers: str, length: int | None = None) -> Talk:
    async def talk(one: Conversation) -> None:
        await one.read_head()
        await one.read_body()
        await one.say(status, body, *headers, length=length)

    return talk


async def never_answers(one: Conversation) -> None:
    await one.read_head()
    await one.read_body()


async def reads_late(one: Conversation) -> None:
    await one.read_head()
    await one.read_on.wait()


async def test_accepted_with_the_body_as_it_was_and_nothing_the_server_would_trip_over() -> None:
    async with peer(saying("200 OK", RECEIPT, SERVER)) as made:
        assert await post(made.url) == PostReply(Reply.ACCEPTED, 200, number=4.0)
        (one,) = made.conversations
        assert one.received == BODY
        assert one.head.startswith(b"POST /prompt HTTP/1.1\r\n")
        assert one.headers["content-length"] == str(len(BODY))
        assert one.headers["content-type"] == "application/json"
        assert one.headers["accept-encoding"] == "identity"
        assert one.headers["connection"] == "close"
        assert not {"transfer-encoding", "expect", "cookie", "origin", "content-encoding"} & set(one.headers)


async def test_every_post_has_a_connection_of_its_own() -> None:
    async with peer(saying("200 OK", RECEIPT, SERVER)) as made, client(made.url) as comfy:
        for _ in range(3):
            await comfy.post(BODY, job_id=JOB, timeout_s=20, gate=lambda: True)
        assert len(made.conversations) == 3


async def test_a_path_in_front_of_the_server_is_kept() -> None:
    async with peer(saying("200 OK", RECEIPT, SERVER)) as made:
        await post(f"{made.url}/comfy/")
        assert made.conversations[0].head.startswith(b"POST /comfy/prompt HTTP/1.1\r\n")


async def test_nobody_listens_is_refused_for_no_byte_left() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        reply = await post(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (reply.kind, reply.status, reply.error_type) == (Reply.REFUSED, None, "connect")


async def test_no_tls_on_the_other_side_is_refused_for_no_byte_of_ours_left() -> None:
    async def talk(one: Conversation) -> None:
        one.abort()

    async with peer(talk) as made:
        reply = await post(made.url.replace("http:", "https:"))
    assert (reply.kind, reply.error_type) == (Reply.REFUSED, "connect")


async def lost_reply(one: Conversation) -> None:
    await never_answers(one)
    one.abort()


async def polite_close_without_reply(one: Conversation) -> None:
    await never_answers(one)
    one.writer.close()


async def reset_before_the_body_was_read(one: Conversation) -> None:
    await one.read_head()
    one.abort()


async def reset_in_the_reply(one: Conversation) -> None:
    await never_answers(one)
    await one.say("200 OK", RECEIPT[:20], SERVER, length=len(RECEIPT))
    one.abort()


async def five_hundred_cut_off(one: Conversation) -> None:
    await never_answers(one)
    await one.say("500 Internal Server Error", FIVE_HUNDRED[:9], SERVER, length=len(FIVE_HUNDRED))
    one.writer.close()


async def not_http_at_all(one: Conversation) -> None:
    await never_answers(one)
    one.writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    one.writer.close()


@pytest.mark.parametrize(
    "talk",
    [
        lost_reply,
        polite_close_without_reply,
        reset_before_the_body_was_read,
        reset_in_the_reply,
        five_hundred_cut_off,
        not_http_at_all,
        saying("200 OK", b"<html>starting</html>", SERVER),
        saying("200 OK", b"x" * 2_000_000, SERVER),
        saying("502 Bad Gateway", b"<html>502</html>", "Server: nginx"),
        saying("503 Service Unavailable", b"", SERVER),
        saying("500 Internal Server Error", FIVE_HUNDRED, "Server: nginx"),
        saying("500 Internal Server Error", FIVE_HUNDRED),
    ],
)
async def test_whatever_may_hide_a_queued_prompt_is_open_doubt(talk: Talk) -> None:
    async with peer(talk) as made:
        assert (await post(made.url)).kind is Reply.OPEN_DOUBT
        assert len(made.conversations) == 1, "a POST is never sent twice"


async def test_a_whole_500_of_comfyui_is_settled_doubt() -> None:
    async with peer(saying("500 Internal Server Error", FIVE_HUNDRED, SERVER)) as made:
        assert (await post(made.url)).kind is Reply.SETTLED_DOUBT


async def test_a_redirect_is_not_followed() -> None:
    async with peer(saying("200 OK", RECEIPT, SERVER)) as other:
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
            async with peer(saying(status, b"", f"Location: {other.url}/prompt")) as made:
                assert (await post(made.url)).kind is Reply.REFUSED_IN_FRONT
        assert other.conversations == []


async def test_an_answer_that_comes_before_the_body_was_read_is_heard() -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()
        await one.say("413 Request Entity Too Large", b"too large", "Server: nginx")
        await one.reset

    async with peer(talk) as made:
        reply = await post(made.url, LONG_BODY)
    assert (reply.kind, reply.error_type) == (Reply.REFUSED, "too_large")


async def held_back(made: Peer) -> None:
    reply = await post(made.url, gate=lambda: False)
    assert (reply.kind, reply.status, reply.error_type) == (Reply.REFUSED, None, "withheld")
    (one,) = made.conversations
    assert await one.reset is True
    assert one.received == BODY[:-1]
    assert one.size == len(BODY)


async def times_out_without_answer(made: Peer) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    reply = await post(made.url, timeout_s=0.3)
    assert loop.time() - began < 5
    assert (reply.kind, reply.error_type) == (Reply.OPEN_DOUBT, "no_answer")
    assert await made.conversations[0].reset is True


async def times_out_with_bytes_in_our_buffers(made: Peer) -> None:
    gate = Gate()
    reply = await post(made.url, LONG_BODY, timeout_s=0.3, gate=gate)
    assert reply.kind is Reply.OPEN_DOUBT
    assert gate.asked == 0, "the gate is asked when all but the last byte has left, not before"
    (one,) = made.conversations
    one.read_on.set()
    assert await one.reset is True
    assert len(one.received) < len(LONG_BODY) / 2, "what waited in our buffers was thrown away, not sent after all"


async def cancelled_in_the_middle(made: Peer) -> None:
    task = asyncio.create_task(post(made.url))
    await made.met.wait()
    await made.conversations[0].read.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await made.conversations[0].reset is True


async def partly_read(one: Conversation) -> None:
    await one.read_head()


ABORTS: list[tuple[Talk, Callable[[Peer], Awaitable[None]]]] = [
    (partly_read, held_back),
    (never_answers, times_out_without_answer),
    (reads_late, times_out_with_bytes_in_our_buffers),
    (never_answers, cancelled_in_the_middle),
]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("talk", "attack"), ABORTS, ids=[attack.__name__ for _, attack in ABORTS])
def test_a_post_given_up_is_reset_and_what_had_not_left_never_arrives(
    talk: Talk,
    attack: Callable[[Peer], Awaitable[None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), peer(talk) as made:
            await attack(made)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_the_gate_is_asked_once_and_only_when_the_last_byte_could_leave_at_once() -> None:
    gate = Gate()

    async def talk(one: Conversation) -> None:
        await reads_late(one)
        await one.read_body(one.size - 1)
        await one.read_body(1)
        await one.say("200 OK", RECEIPT, SERVER)

    async with peer(talk) as made:
        task = asyncio.create_task(post(made.url, LONG_BODY, gate=gate))
        await made.met.wait()
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert gate.asked == 0
        made.conversations[0].read_on.set()
        assert (await task).kind is Reply.ACCEPTED
        assert gate.asked == 1
        assert made.conversations[0].received == LONG_BODY


async def test_the_gate_waits_for_a_short_body_too_where_the_network_takes_it_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    body = b'"' + b"x" * 60_000 + b'"'
    resetting = fresh._resetting_socket

    def narrow(address: tuple[Any, ...]) -> socket.socket:
        made = resetting(address)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        return made

    async def talk(one: Conversation) -> None:
        await reads_late(one)
        await one.read_body()
        await one.say("200 OK", RECEIPT, SERVER)

    monkeypatch.setattr(fresh, "_resetting_socket", narrow)
    async with peer(talk, narrow=True) as made:
        task = asyncio.create_task(post(made.url, body, gate=gate))
        await made.met.wait()
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert gate.asked == 0
        made.conversations[0].read_on.set()
        assert (await task).kind is Reply.ACCEPTED
        assert gate.asked == 1


async def test_a_gate_that_raises_is_not_mistaken_for_a_fault_of_the_wire() -> None:
    def gate() -> bool:
        raise RuntimeError("a fault of ours")

    async with peer(partly_read) as made:
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await post(made.url, gate=gate)
        assert await made.conversations[0].reset is True
