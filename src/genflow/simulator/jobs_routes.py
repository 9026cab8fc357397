"""`/api/jobs`: one prompt's state in one small answer (docs/design/comfyui.md, sections 4 and 7)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from genflow.simulator.answers import SERVER, said
from genflow.simulator.prompts import canonical_uuid
from genflow.simulator.summary import normalized, summary

if TYPE_CHECKING:
    from genflow.simulator.prompts import Item
    from genflow.simulator.server import SimulatedServer

STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")


def _workflow_id(extra_data: dict[str, Any]) -> dict[str, Any]:
    # A null anywhere on this way raises: one such prompt makes the list a 500 for everybody (recorded).
    found = extra_data.get("extra_pnginfo", {}).get("workflow", {}).get("id")
    return {} if found is None else {"workflow_id": found}


def _open_job(item: Item, status: str) -> dict[str, Any]:
    return {
        "id": item.prompt_id,
        "status": status,
        "priority": item.number,
        "create_time": item.extra_data.get("create_time"),
        "outputs_count": 0,
        "previewable_outputs_count": 0,
    } | _workflow_id(item.extra_data)


def _ended_job(prompt_id: str, entry: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    number, _, graph, extra_data, _ = entry["prompt"]
    messages = dict(entry["status"]["messages"])
    status = "completed"
    if entry["status"]["status_str"] != "success":
        status = "cancelled" if "execution_interrupted" in messages else "failed"
    job: dict[str, Any] = {
        "id": prompt_id,
        "status": status,
        "priority": number,
        "create_time": extra_data.get("create_time"),
        "execution_start_time": entry["status"]["messages"][0][1]["timestamp"],
        "execution_end_time": entry["status"]["messages"][-1][1]["timestamp"],
    }
    if "execution_error" in messages:
        job["execution_error"] = messages["execution_error"]
    job |= summary(entry["outputs"]) | _workflow_id(extra_data)
    if whole:
        job |= {
            "outputs": normalized(entry["outputs"]),
            "execution_status": entry["status"],
            "workflow": {"prompt": graph, "extra_data": extra_data},
        }
    return job


async def get_job(request: web.Request) -> web.Response:
    """`GET /api/jobs/ID`: the history comes first, so an older entry hides an open prompt of the same id."""
    prompts = request.app[SERVER].boot.prompts
    prompt_id = request.match_info["prompt_id"]
    entry = prompts.history.get(prompt_id)
    if entry is not None:
        return said(_ended_job(prompt_id, entry, whole=True))
    if prompts.running is not None and prompts.running.prompt_id == prompt_id:
        return said(_open_job(prompts.running, "in_progress"))
    pending = prompts.find_pending(prompt_id)
    if pending is not None:
        return said(_open_job(pending, "pending"))
    return said({"error": "Job not found"}, 404)


async def get_jobs(request: web.Request) -> web.Response:
    """`GET /api/jobs`: all of them, newest first."""
    prompts = request.app[SERVER].boot.prompts
    wanted = [word for word in request.query.get("status", "").split(",") if word]
    unknown = [word for word in wanted if word not in STATUSES]
    if unknown:
        valid = ", ".join(STATUSES)
        return said({"error": f"Invalid status value(s): {', '.join(unknown)}. Valid values: {valid}"}, 400)
    jobs = [_ended_job(prompt_id, entry, whole=False) for prompt_id, entry in prompts.history.items()]
    if prompts.running is not None:
        jobs.append(_open_job(prompts.running, "in_progress"))
    jobs += [_open_job(item, "pending") for item in sorted([*prompts.pending, *prompts.standing])]
    jobs = [job for job in jobs if not wanted or job["status"] in wanted]
    jobs.sort(key=lambda job: job["create_time"] or 0)
    jobs.reverse()
    offset = max(0, int(request.query.get("offset", 0)))
    limit = int(request.query["limit"]) if "limit" in request.query else None
    page = jobs[offset:] if limit is None else jobs[offset : offset + limit]
    more = offset + len(page) < len(jobs)
    pagination = {"offset": offset, "limit": limit, "total": len(jobs), "has_more": more}
    return said({"jobs": page, "pagination": pagination})


def _cancel(server: SimulatedServer, prompt_id: str) -> bool:
    boot = server.boot
    running = boot.prompts.running
    if running is not None and running.prompt_id == prompt_id:
        if server.knobs.take("interrupt_ignored") is None:
            boot.bench.interrupt.set()
        return True
    return server.take_back(prompt_id)


async def cancel_job(request: web.Request) -> web.Response:
    """`POST /api/jobs/ID/cancel`: running and pending ones; false for ended and unknown ones."""
    return said({"cancelled": _cancel(request.app[SERVER], request.match_info["prompt_id"])})


async def cancel_jobs(request: web.Request) -> web.Response:
    """`POST /api/jobs/cancel {"job_ids": [...]}`; malformed ids are a 400."""
    body = json.loads(await request.read())
    wanted = body.get("job_ids", [])
    invalid = [job_id for job_id in wanted if not canonical_uuid(job_id)]
    if invalid:
        return said({"error": "job_ids contains invalid id(s)", "invalid_ids": invalid}, 400)
    server = request.app[SERVER]
    return said({"cancelled": any([_cancel(server, job_id) for job_id in wanted])})


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

READ: list[tuple[str, Handler]] = [("/api/jobs", get_jobs), ("/api/jobs/{prompt_id}", get_job)]
WRITE: list[tuple[str, Handler]] = [
    ("/api/jobs/cancel", cancel_jobs),
    ("/api/jobs/{prompt_id}/cancel", cancel_job),
]
