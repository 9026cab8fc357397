"""`/healthz` and `/api/v2/health`: the process answers. `/readyz`: database, schema and storage are there for it.

`/metrics`: what this process counts and how the queue stands, for Prometheus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from genflow.errors import GenflowError, clean_text
from genflow.postgres.migrations import check_schema
from genflow.postgres.pool import Pool
from genflow.queue.servers import Servers
from genflow.storage.store import Store
from genflow.telemetry import metrics

CHECK_S = 3.0
"""Seconds that one check of readiness may take."""

Check = Callable[[], Awaitable[None]]


def checks(pool: Pool, store: Store) -> dict[str, Check]:
    """What the API needs; each check raises when it is not there."""
    conninfo = cast("str", pool.conninfo)  # as open_pool was given it

    async def database() -> None:
        async with pool.connection(timeout=CHECK_S) as connection:
            await connection.execute("select 1")

    async def schema() -> None:
        await asyncio.to_thread(check_schema, conninfo)

    async def storage() -> None:
        await store.marker()

    return {"database": database, "schema": schema, "storage": storage}


def routes(needs: dict[str, Check], servers: Servers) -> APIRouter:
    """The routes of health."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> JSONResponse:
        """The process lives and answers."""
        return JSONResponse({"status": "ok"})

    @router.get("/api/v2/health")
    async def contract() -> JSONResponse:
        """The same in the words of the Comfy API v2's own proxy; `upstream` is the fleet. Open to everybody."""
        listed = await servers.listed()
        healthy = sum(any(each["healthy"] for each in row["seen_by"]) for row in listed)
        return JSONResponse({"status": "healthy", "upstream": f"{healthy} of {len(listed)} ComfyUI servers are up"})

    @router.get("/metrics")
    async def prometheus() -> Response:
        """This process's counts, and the queue as it stands for all of them."""
        told = metrics.exposed(metrics.QueueGauges(await servers.status()))
        return Response(told, media_type=metrics.CONTENT_TYPE)

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        """Everything that the API needs is there."""
        names = list(needs)
        found = dict(zip(names, await asyncio.gather(*(_state(needs[name]) for name in names)), strict=True))
        missing = [name for name in names if found[name] != "ok"]
        if missing:
            message = f"Not ready: {', '.join(missing)}."
            raise GenflowError("not_ready", message, status=503, details={"checks": found})
        return JSONResponse({"status": "ready", "checks": found})

    return router


async def _state(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_S:g} s"
    except Exception as error:  # whatever it is, it belongs into the answer and not into a 500
        return clean_text(f"{type(error).__name__}: {error}", 300)
    return "ok"
