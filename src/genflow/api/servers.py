"""`/genflow/v1/servers`, `/workers`, `/status`: the fleet and how things stand."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api.context import Context, flag_of
from genflow.api.shapes import time
from genflow.queue.registry import ServerState
from genflow.queue.writer import Row


def routes(context: Context) -> APIRouter:
    """The routes of the fleet."""
    router = APIRouter(prefix="/genflow/v1", tags=["servers"])
    servers = context.queue.servers

    async def shown(name: str) -> JSONResponse:
        rows = await servers.listed(forgotten=True)
        return JSONResponse(next(_server(row) for row in rows if row["name"] == name))

    @router.get("/servers")
    async def listing(request: Request) -> JSONResponse:
        """The servers by name; `?all=true` with those that were forgotten."""
        rows = await servers.listed(forgotten=flag_of("all", request.query_params.get("all")))
        return JSONResponse({"servers": [_server(row) for row in rows]})

    @router.get("/workers")
    async def workers() -> JSONResponse:
        """The workers by name, with the jobs that each holds and the servers that it drives."""
        return JSONResponse({"workers": [_worker(row) for row in await servers.workers()]})

    @router.get("/status")
    async def status() -> JSONResponse:
        """How things stand, in one look."""
        return JSONResponse(_status(await servers.status(), await servers.listed(), await servers.workers()))

    @router.post("/servers/{name:path}/drain")
    async def drain(name: str) -> JSONResponse:
        """No new job goes there; what it has goes on. Idempotent."""
        await servers.drain(name, "drained by hand")
        return await shown(name)

    @router.post("/servers/{name:path}/resume")
    async def resume(name: str) -> JSONResponse:
        """Ends a drain or a quarantine. Idempotent."""
        await servers.resume(name)
        return await shown(name)

    @router.post("/servers/{name:path}/forget")
    async def forget(request: Request, name: str) -> JSONResponse:
        """It is gone for good: its jobs go elsewhere, counted. `?yes=true` although it was seen a moment ago."""
        await servers.forget(name, seen=flag_of("yes", request.query_params.get("yes")))
        return await shown(name)

    return router


def _server(row: Row) -> dict[str, Any]:
    return {
        "name": row["name"],
        "state": ServerState(row["state"]).name.lower(),
        "reason": row["reason"],
        "until": time(row["quarantined_until"]),
        "needs_run": row["needs_run"],
        "healthy": any(seen["healthy"] for seen in row["seen_by"]),
        "boot": None if row["boot"] is None else str(row["boot"]),
        "guard": row["guard"],
        "slots": row["slots"],
        "open_submits": row["open_submits"],
        "waiting_jobs": row["waiting_jobs"],
        "erasures_left": row["erasures_left"],
        "vram_bytes": row["vram"],
        "tags": row["tags"],
        "last_seen_at": time(row["last_seen_at"]),
        "seen_by": row["seen_by"],
    }


def _worker(row: Row) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "host": row["host"],
        "version": row["version"],
        "state": "gone" if not row["alive"] else "draining" if row["draining"] else "working",
        "jobs": row["jobs"],
        "servers": row["servers"],
        "started_at": time(row["started_at"]),
        "seen_at": time(row["seen_at"]),
    }


def _status(row: Row, servers: list[Row], workers: list[Row]) -> dict[str, Any]:
    shown = [_server(server) for server in servers]
    lost = [server for server in shown if server["waiting_jobs"] and not server["healthy"]]
    return {
        "jobs": {name: row[name] for name in ("queued", "waiting", "bound", "held", "canceling")},
        "oldest_waiting_s": row["oldest_s"],
        "last_hour": {
            "succeeded": row["succeeded_hour"],
            "failed": row["failed_hour"],
            "dead_letters_by_class": row["dead_by_class"],
        },
        "ended_per_minute": round(row["ended_5min"] / 5, 2),
        "waiting_for_lost_servers": sum(server["waiting_jobs"] for server in lost),
        "servers": [
            {name: server[name] for name in ("name", "state", "reason", "healthy", "open_submits", "waiting_jobs")}
            for server in shown
        ],
        "workers": [{name: each[name] for name in ("name", "state", "jobs")} for each in map(_worker, workers)],
    }
