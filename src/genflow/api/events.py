"""`GET /api/v2/jobs/{id}/events`: a job as it goes on, as server-sent events.

`status` first, then the latest progress and preview, then what changes; every output before the status that ends the
job, with which the stream ends. There is no replay: who connects again begins with the present.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from genflow.api import shapes
from genflow.api.context import Context, uuid_of
from genflow.api.hub import Watcher
from genflow.api.jobs import view_of
from genflow.api.links import Links
from genflow.errors import GenflowError
from genflow.queue.records import JobView

RETRY_AFTER_S = 5
"""Seconds after which a client that found no free stream may try again; it may poll at any time."""

_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}

Event = tuple[str, dict[str, Any]]


def routes(context: Context) -> APIRouter:
    """The route of events."""
    router = APIRouter(prefix="/api/v2/jobs", tags=["jobs"])

    @router.get("/{job_id}/events")
    async def events(request: Request, job_id: str) -> StreamingResponse:
        """What happens to the job, from now to its end."""
        wanted = uuid_of("job", job_id)
        view = await view_of(context, request, wanted)
        limit = context.settings.max_streams
        if context.hub.watching >= limit:
            raise GenflowError(
                "too_many_streams",
                f"This process streams to {limit} clients, and to no more; poll the job, or try again soon.",
                status=429,
                details={"limit": limit},
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        stream = _stream(context, view, context.links(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)

    return router


async def _stream(context: Context, view: JobView, links: Links) -> AsyncIterator[str]:
    """The frames of one stream. A client that reads slowly gets what is newest once it reads again."""
    teller = Teller(links)
    with context.hub.watch(view.id) as watcher:
        watcher.view = view
        while True:
            for name, data in teller.told(watcher):
                yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
            if watcher.over or (watcher.view is not None and watcher.view.state.terminal):
                return
            while not await watcher.news(context.settings.stream_heartbeat_s):
                yield ": still here\n\n"


class Teller:
    """What one client was told, and what is new to it."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._status: dict[str, Any] | None = None
        self._progress: dict[str, Any] | None = None
        self._preview_no = 0
        self._outputs: set[UUID] = set()

    def told(self, watcher: Watcher) -> list[Event]:
        """The events that tell this client of what the watcher knows, in their order."""
        view = watcher.view
        if view is None:
            return []
        status = {"status": view.status.value, "queue_position": view.queue_position}
        if view.state.terminal and self._status is None:
            return [("status", status)]  # it comes when all is over: the outputs are in the job
        outputs = self._new_outputs(view)
        if view.state.terminal:
            # A client reads no further than the status that ends the job.
            return [*outputs, ("status", status)]
        return [*self._new_status(status), *outputs, *self._new_progress(view), *self._new_preview(watcher)]

    def _new_status(self, status: dict[str, Any]) -> list[Event]:
        if status == self._status:
            return []
        self._status = status
        return [("status", status)]

    def _new_outputs(self, view: JobView) -> list[Event]:
        new = [output for output in view.outputs if output.id not in self._outputs]
        self._outputs |= {output.id for output in new}
        return [("output", shapes.output(output, view, self._links)) for output in new]

    def _new_progress(self, view: JobView) -> list[Event]:
        progress = shapes.progress(view.progress)
        if progress is None or progress == self._progress:
            return []
        self._progress = progress
        return [("progress", progress)]

    def _new_preview(self, watcher: Watcher) -> list[Event]:
        preview = watcher.preview
        if preview is None or preview.no <= self._preview_no:
            return []
        self._preview_no = preview.no
        data = base64.b64encode(preview.jpeg).decode()
        return [("preview", {"node_id": preview.node_id, "content_type": "image/jpeg", "data_base64": data})]
