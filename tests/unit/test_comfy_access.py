"""A server's own headers go with every call to it and to nobody else, and its certificate is checked by its ca_file."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from genflow.comfy import Access, ComfyServer, ServerAnswered, ServerUnreachable, access, fresh, open_session
from genflow.errors import GenflowError
from genflow.outputs import Output

TLS = Path(__file__).parent / "data" / "tls"
"""A certificate for 127.0.0.1 that signed itself, and its key: of no use but here."""


async def chunks() -> AsyncIterator[bytes]:
    yield b"x"


async def every_kind_of_call(comfy: ComfyServer) -> None:
    """Each way to the wire once, whatever is answered."""
    job = uuid4()
    calls = [
        comfy.depth(),
        comfy.upload("a.png", "folder", chunks(), 1, lambda: True),
        comfy.cancel(job),
        comfy.queue_delete(job),
    ]
    for call in calls:
        with contextlib.suppress(ServerAnswered):
            await call
    await comfy.post(b"{}", job_id=job, timeout_s=5.0, gate=lambda: True)
    with contextlib.suppress(ServerAnswered):
        async for _ in comfy.view(Output("3", "images", 0, "a.png", "", "output")):
            pass
    with contextlib.suppress(ServerAnswered):
        await _open(comfy)


async def test_every_call_carries_the_headers_and_no_text_shows_them() -> None:
    seen: dict[str, str | None] = {}

    async def note(request: web.Request) -> web.Response:
        seen[f"{request.method} {request.path}"] = request.headers.get("Authorization")
        return web.Response(status=418)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", note)
    reached = access({"Authorization": "Bearer secret", "Content-Type": "ours wins"}, None)
    async with TestServer(app) as server, open_session() as session:
        await every_kind_of_call(ComfyServer("gpu0", str(server.make_url("")), session, reached))
    wanted = {"GET /prompt", "POST /prompt", "POST /upload/image", "POST /queue", "GET /view", "GET /ws"}
    assert wanted <= set(seen)
    assert set(seen.values()) == {"Bearer secret"}
    assert "secret" not in repr(reached)


async def _open(comfy: ComfyServer) -> None:
    async with comfy.watch("client"):
        pass


@pytest.mark.parametrize("socket", [True, False])
async def test_no_redirect_carries_them_elsewhere(socket: bool) -> None:
    elsewhere: list[str] = []

    async def other(request: web.Request) -> web.Response:
        elsewhere.append(request.path)
        return web.json_response({"exec_info": {"queue_remaining": 0}})

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPFound(there.make_url("/prompt"))

    first, second = web.Application(), web.Application()
    first.router.add_get("/{path:.*}", redirect)
    second.router.add_get("/{path:.*}", other)
    async with TestServer(first) as here, TestServer(second) as there, open_session() as session:
        comfy = ComfyServer("gpu0", str(here.make_url("")), session, Access({"X-Key": "secret"}))
        with pytest.raises(ServerAnswered):
            await (_open(comfy) if socket else comfy.depth())
    assert elsewhere == []


async def test_a_certificate_is_checked_by_the_servers_own_ca_file() -> None:
    async def depth(_: web.Request) -> web.Response:
        return web.json_response({"exec_info": {"queue_remaining": 3}})

    async def prompt(_: web.Request) -> web.Response:
        return web.Response(status=400)

    app = web.Application()
    app.add_routes([web.get("/prompt", depth), web.post("/queue", prompt)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    url = f"https://127.0.0.1:{server.port}"
    try:
        async with open_session() as session:
            trusted = ComfyServer("gpu0", url, session, access({}, TLS / "server.pem"))
            assert await trusted.depth() == 3
            with pytest.raises(ServerAnswered):
                await trusted.queue_delete(uuid4())
            _, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=ssl.create_default_context(cafile=TLS / "server.pem")
            )
            reset_after_it_was_closed_twice(writer.transport)
            stranger = ComfyServer("gpu0", url, session)
            with pytest.raises(ServerUnreachable, match="certificate"):
                await stranger.depth()
            with pytest.raises(ServerUnreachable, match="certificate"):
                await stranger.queue_delete(uuid4())
    finally:
        await server.close()


def reset_after_it_was_closed_twice(transport: asyncio.WriteTransport) -> None:
    """CPython's TLS transport forgets its protocol then; what is closed already needs no reset."""
    connector = fresh._Connector()
    connector.transport = transport
    transport.close()
    transport.close()
    connector.abort()


@pytest.mark.parametrize(("content", "why"), [(None, "no such file"), ("no certificate", "PEM")])
def test_a_ca_file_that_cant_be_used_is_named(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GenflowError, match=why) as caught:
        access({}, path)
    assert caught.value.code == "ca_file_unusable"
    assert str(path) in caught.value.message
