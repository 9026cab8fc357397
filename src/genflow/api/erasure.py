"""`DELETE /genflow/v1/jobs/{id}`: a job, its photo, its pictures and its copies on servers, in one call."""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api.context import Context, tenant_of, uuid_of
from genflow.api.errors import not_found
from genflow.errors import GenflowError
from genflow.upkeep.retention import Retention

log = structlog.get_logger()


def routes(context: Context) -> APIRouter:
    """The route that erases a job."""
    router = APIRouter(prefix="/genflow/v1/jobs", tags=["jobs"])
    retention = Retention(context.queue.erasure, context.store, grace_s=context.settings.blob_grace_s)

    @router.delete("/{job_id}")
    async def erase(request: Request, job_id: str) -> JSONResponse:
        """Erase a job. 200 where nothing of it is left, 202 where the answer says what is still to be done."""
        wanted = uuid_of("job", job_id)
        if not await context.queue.erase(wanted, tenant=tenant_of(request)):
            raise not_found("job", job_id)
        try:
            await retention.let_go([wanted])
            files_deleted = await retention.hurried_blobs()
        except GenflowError as error:
            log.warning("erasure_postponed", job=job_id, why=error.message)
            files_deleted = False
        left = await context.queue.erasure.left(wanted)
        files_deleted = files_deleted and not left.job
        shown = {
            "id": job_id,
            "status": "canceling" if left.job else "erased",
            "files_deleted": files_deleted,
            "copies_left": left.servers,
        }
        return JSONResponse(shown, status_code=200 if files_deleted and not left.servers else 202)

    return router
