"""Fetching what a stranger names, from a real server: each hop is checked, and bytes and time are bounded."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from genflow.errors import GenflowError
from genflow.outside import Allowed, Opener
from genflow.outside.addresses import Address

HERE = Allowed.of(["127.0.0.1/32"])


async def _redirect(request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": request.query["to"]})


async def _loop(request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "/loop"})


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"x" * 65_536)


async def _slow(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"begun")
    await asyncio.sleep(3)
    return answer


async def _told(request: web.Request) -> web.Response:
    return web.json_response({"host": request.headers["Host"], "names": sorted(request.headers)})


@pytest.fixture
async def site() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/redirect", _redirect)
    app.router.add_get("/endless", _endless)
    app.router.add_get("/slow", _slow)
    app.router.add_get("/told", _told)
    app.router.add_get("/loop", _loop)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fetched(opener: Opener, url: str, limit: int = 100_000) -> bytes:
    async with opener.get(url, limit_bytes=limit, field="photo_url") as answer:
        return b"".join([chunk async for chunk in answer.chunks])


async def refused(opener: Opener, url: str, limit: int = 100_000) -> tuple[str, str]:
    with pytest.raises(GenflowError) as caught:
        await fetched(opener, url, limit)
    assert caught.value.details is not None
    assert caught.value.details["field"] == "photo_url"
    assert caught.value.message.startswith("photo_url: ")
    return caught.value.code, caught.value.details["reason"]


async def test_what_is_allowed_is_fetched_and_nothing_of_ours_is_told(site: str) -> None:
    told = await fetched(Opener(HERE), f"http://{site}/redirect?to=/told")
    assert b'"names": ["Accept", "Accept-Encoding", "Host", "User-Agent"]' in told


async def test_the_same_server_without_an_allowance_is_refused(site: str) -> None:
    assert await refused(Opener(Allowed()), f"http://{site}/told") == ("url_refused", "loopback")


async def test_each_hop_is_checked(site: str) -> None:
    opener = Opener(HERE)
    for to, rule in (
        ("http://169.254.169.254/latest", "metadata"), ("http://127.0.0.2/", "loopback"), ("file:///x", "scheme"),
        ("http://0x7f.1/", "address_form"), ("/loop", "redirects"),
    ):  # fmt: skip
        assert await refused(opener, f"http://{site}/redirect?to={to}") == ("url_refused", rule), to


async def test_the_address_that_was_checked_is_the_one_that_is_asked(site: str) -> None:
    asked: list[str] = []
    answers: list[Address] = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("127.0.0.2")]

    async def rebinding(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [answers[len(asked) - 1]]

    opener = Opener(HERE, resolve=rebinding)
    port = site.rpartition(":")[2]
    assert f'"host": "rebind.example:{port}"'.encode() in await fetched(opener, f"http://rebind.example:{port}/told")
    assert asked == ["rebind.example"], "a name is looked up once, by us"
    assert await refused(opener, f"http://rebind.example:{port}/told") == ("url_refused", "loopback")


async def test_bytes_are_bounded_while_they_come(site: str) -> None:
    assert await refused(Opener(HERE), f"http://{site}/endless") == ("url_refused", "too_large")
    assert await refused(Opener(HERE), f"http://{site}/told", limit=10) == ("url_refused", "too_large")


async def test_time_is_bounded(site: str) -> None:
    assert await refused(Opener(HERE, total_s=0.3), f"http://{site}/slow") == ("url_failed", "timeout")


async def test_what_does_not_answer_says_why(site: str) -> None:
    assert await refused(Opener(HERE), f"http://{site}/nothing") == ("url_failed", "status")
    assert await refused(Opener(HERE), "http://127.0.0.1:1/") == ("url_failed", "connection")

    async def unknown(host: str, port: int) -> list[Address]:
        raise OSError(-2, "Name or service not known")

    assert await refused(Opener(HERE, resolve=unknown), "http://no.example/") == ("url_failed", "unknown_host")
