"""The HTTP application: routes over the queue and the store, and one way to fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware

from genflow import __version__
from genflow.accounts import Accounts
from genflow.api import (
    assets,
    batches,
    dead,
    erasure,
    events,
    fetched,
    health,
    jobs,
    portraits,
    servers,
    story,
    templates,
    uploads,
)  # fmt: skip
from genflow.api.context import Context
from genflow.api.document import describe
from genflow.api.errors import REQUEST_ID_HEADER, handle_errors
from genflow.api.gate import gate
from genflow.api.hub import Hub
from genflow.api.links import Mounted
from genflow.api.making import Maker
from genflow.api.signing import Signer
from genflow.api.waiting import Ends
from genflow.errors import GenflowError, clean_text
from genflow.postgres.pool import Pool
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.store import Store

_ONLY_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


def create_app(
    queue: Queue, store: Store, settings: Settings, pool: Pool, *, link_secret: bytes, accounts: Accounts
) -> FastAPI:
    """The API of one process. `pool` is what `/readyz` looks through; the caller opens and closes all of them.

    `link_secret` signs the links to pictures: the installation's, so that each of its processes knows them.
    GenflowError `template_invalid` or `setting_invalid` for templates or a `fetch_allow` that can't be used.
    """
    context = Context(
        queue=queue,
        store=store,
        settings=settings,
        signer=Signer(link_secret, settings.url_ttl_s),
        hub=Hub(queue),
        maker=Maker.of(queue, store, settings),
        ends=Ends(queue.live),
    )
    app = FastAPI(
        title="genflow",
        version=__version__,
        description="The durable production service in front of ComfyUI.",
        dependencies=[
            Depends(_refuse_foreign_pages(settings.public_url, settings.allowed_origins)),
            Depends(gate(accounts, settings.auth)),
        ],
    )
    app.state.hub = context.hub
    app.state.signer = context.signer
    handle_errors(app)
    for room in (jobs, events, uploads, assets, portraits, templates, fetched, story, erasure, dead, batches, servers):
        app.include_router(room.routes(context))
    app.include_router(health.routes(health.checks(pool, store), queue.servers))
    prefix = urlsplit(settings.public_url or "").path.rstrip("/")
    describe(app, prefix)
    app.add_middleware(Mounted, prefix=prefix)
    if settings.allowed_origins:
        # The outermost, so that a page can read refusals too.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(settings.allowed_origins),
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Prefer", "Range"],
            expose_headers=["Content-Range", "Idempotency-Replayed", "Location", "Retry-After", REQUEST_ID_HEADER],
        )
    return app


def _refuse_foreign_pages(public_url: str | None, allowed: Collection[str]) -> Callable[[Request], Awaitable[None]]:
    """A web page from elsewhere must not act through a visitor's browser on an API that listens on loopback.

    Those of the `allowed` origins may. Browsers say where a request comes from; other clients send neither header.
    ComfyUI has the same rule.
    """
    ours = urlsplit(public_url).netloc if public_url else None

    async def refuse(request: Request) -> None:
        if request.method in _ONLY_LOOKS:
            return
        origin = request.headers.get("origin")
        if origin in allowed:
            return
        hosts = {ours, request.headers.get("host"), request.headers.get("x-forwarded-host")}
        foreign = origin is not None and origin.partition("://")[2] not in hosts
        if foreign or request.headers.get("sec-fetch-site") == "cross-site":
            shown = clean_text(origin or "another site", 200)
            raise GenflowError(
                "forbidden_origin",
                f"A page of {shown} may not use this API.",
                status=403,
                details={"field": "Origin", "got": shown},
            )

    return refuse
