"""The worker's own two pages: is the process alive, and does it reach a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from genflow.fleet import Fleet


@asynccontextmanager
async def health_page(fleet: Fleet, *, host: str, port: int) -> AsyncIterator[str]:
    """Serve `/healthz` and `/readyz` (200 with a healthy server, else 503 with each one's reason); its address."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_: web.Request) -> web.Response:
        servers = {server.name: "healthy" if server.healthy else server.why for server in fleet.servers}
        ready = any(server.healthy for server in fleet.servers)
        return web.json_response(
            {"status": "ok" if ready else "unavailable", "servers": servers}, status=200 if ready else 503
        )

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
        address = runner.addresses[0]
        yield f"http://{host}:{address[1]}"
    finally:
        await runner.cleanup()
