"""The worker's own pages: is the process alive, does it reach a server, and what does it count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from genflow.fleet import Fleet, FleetServer
from genflow.telemetry import metrics


@asynccontextmanager
async def health_page(fleet: Fleet, *, host: str, port: int) -> AsyncIterator[str]:
    """Serve `/healthz`, `/readyz` (200 with a healthy server, else 503 with why not) and `/metrics`; its address."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_: web.Request) -> web.Response:
        servers = {server.name: "healthy" if server.healthy else server.why for server in fleet.servers}
        ready = any(server.healthy for server in fleet.servers)
        return web.json_response(
            {"status": "ok" if ready else "unavailable", "servers": servers}, status=200 if ready else 503
        )

    async def prometheus(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposed(), headers={"Content-Type": metrics.CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", prometheus)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
        address = runner.addresses[0]
        with metrics.shown(metrics.FleetGauges(lambda: [_sight(server) for server in fleet.servers])):
            yield f"http://{host}:{address[1]}"
    finally:
        await runner.cleanup()


def _sight(server: FleetServer) -> metrics.ServerSight:
    return metrics.ServerSight(
        name=server.name,
        up=server.healthy,
        takes_new=server.takes_new,
        breaker=server.breaker.position.value,
        state=server.standing.state.name.lower(),
        prompts=server.ahead,
        slots=server.slots,
    )
