"""`POST /genflow/v1/assets`: a file by its URL becomes an asset."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from genflow.api import shapes
from genflow.api.assets import asset_of
from genflow.api.bodies import json_fields
from genflow.api.context import Context, tenant_of
from genflow.templates import invalid_parameter
from genflow.templates.parameters import Text, refuse_unknown

_BODY_BYTES = 16 * 1024
_NAME = Text(1, 200)
_URL = Text(1, 2_048)


def routes(context: Context) -> APIRouter:
    """The route of files by their URL."""
    router = APIRouter(prefix="/genflow/v1/assets", tags=["assets"])

    @router.post("", status_code=201)
    async def fetch(request: Request) -> JSONResponse:
        """Fetch what is at a URL and keep it as an asset."""
        fields = {name: value for name, (value, _) in (await json_fields(request, _BODY_BYTES)).items()}
        refuse_unknown(fields, ("url", "file_path"))
        if fields.get("url") is None:
            raise invalid_parameter("url", "missing", "is required")
        url = _URL.read("url", fields["url"], form=False)
        given = fields.get("file_path")
        name = None if given is None else _NAME.read("file_path", given, form=False)
        asset_id, _ = await context.maker.fetch(url, tenant_of(request), name=name)
        shown = shapes.asset(await asset_of(context, request, str(asset_id)), context.links(request))
        return JSONResponse(shown, status_code=201, headers={"Location": f"/api/v2/assets/{asset_id}"})

    return router
