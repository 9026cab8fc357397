"""The addresses in answers, as the client reaches us: by the configured URL, or by the way its request came."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from genflow.api.signing import Signer
from genflow.errors import GenflowError

_HOST = re.compile(r"[A-Za-z0-9._\-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_CONTENT = re.compile(r".*/api/v2/assets/([0-9a-f-]{36})/content")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~\-]+)*/?")


@dataclass(frozen=True, slots=True)
class Links:
    """Absolute addresses below `base`, which ends without a slash and holds the mount prefix."""

    base: str
    signer: Signer

    def content(self, asset_id: UUID) -> tuple[str, datetime]:
        """Where the bytes of an asset are, without a key, and until when. The SDK wants this one absolute."""
        query, expires = self.signer.query(asset_id, time.time())
        return f"{self.base}/api/v2/assets/{asset_id}/content?{query}", datetime.fromtimestamp(expires, UTC)

    def job(self, job_id: UUID) -> dict[str, str]:
        """The follow-up links of a job."""
        path = f"{self.base}/api/v2/jobs/{job_id}"
        return {"self": path, "events": f"{path}/events", "cancel": f"{path}/cancel"}


class Mounted:
    """Has an application found below a path too, where requests come with that path and where a proxy took it away."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self.app = app
        self.prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through."""
        if scope["type"] == "http" and self.prefix:
            scope = {**scope, "root_path": self.prefix}
        await self.app(scope, receive, send)


def signed_content(request: Request) -> bool:
    """Whether the request reads one file by a link that we signed for it and that is not over: then it needs no key."""
    asset = _signed_for(request)
    return asset is not None and _signer(request).opens(asset, request.query_params, time.time())


def link_refusal(request: Request) -> GenflowError | None:
    """Why a signed link that opens nothing opens nothing, where a key is needed; None for a request without one."""
    asset = _signed_for(request)
    if asset is None:
        return None
    if _signer(request).opens(asset, request.query_params, 0.0):  # ours, once
        message = "This link is over. Get a fresh one from the asset or from its job."
        return GenflowError("link_expired", message, status=403, details={"field": "expires"})
    message = "This link is not one of ours. Use it as the asset or its job gave it."
    return GenflowError("link_invalid", message, status=403, details={"field": "signature"})


def _signed_for(request: Request) -> str | None:
    """The asset whose bytes a link that says to be signed leads to."""
    path = _CONTENT.fullmatch(request.scope["path"])
    reads = request.method in ("GET", "HEAD")
    return path[1] if path is not None and reads and "signature" in request.query_params else None


def _signer(request: Request) -> Signer:
    signer: Signer = request.app.state.signer
    return signer


def links_of(request: Request, public_url: str | None, signer: Signer) -> Links:
    """The links for one request.

    `public_url` decides where it is set. Else the request's own Host and mount prefix, or what a proxy in front says of
    them (`X-Forwarded-Proto`, `-Host`, `-Prefix`, first value each); a value that can't be part of an address is not
    believed. They only shape the links of this one answer.
    """
    if public_url:
        return Links(public_url.rstrip("/"), signer)
    scheme = _forwarded(request, "x-forwarded-proto")
    host = _forwarded(request, "x-forwarded-host")
    prefix = _forwarded(request, "x-forwarded-prefix")
    if scheme not in ("http", "https"):
        scheme = request.url.scheme
    if not _HOST.fullmatch(host):
        host = request.url.netloc
    if not prefix or not _PREFIX.fullmatch(prefix):
        prefix = request.scope.get("root_path", "")
    return Links(f"{scheme}://{host}{prefix.rstrip('/')}", signer)


def _forwarded(request: Request, header: str) -> str:
    return request.headers.get(header, "").partition(",")[0].strip()
