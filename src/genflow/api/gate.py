"""Who may ask what: a key in the Authorization header, its tenant, its role; or a link that stands in for a key.

One dependency of the whole application, so that no route can forget it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import Request

from genflow.accounts import Accounts, KeyRecord
from genflow.api.document import OPEN
from genflow.api.links import link_refusal, signed_content
from genflow.errors import GenflowError

FLEET = ("/genflow/v1/servers", "/genflow/v1/workers", "/genflow/v1/status", "/metrics")
"""What is everybody's: for operators of the house alone, where there are keys."""

Auth = Literal["auto", "keys", "open"]


def gate(accounts: Accounts, auth: Auth) -> Callable[[Request], Awaitable[None]]:
    """Lets a request through, and notes on it whose it is; GenflowError 401 `unauthorized`, 403 `forbidden`.

    With `auto` keys are needed from the first one on.
    """

    async def enter(request: Request) -> None:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path in OPEN or auth == "open" or (auth == "auto" and not await accounts.any()):
            return
        key = _bearer(request)
        if key is None and signed_content(request):
            return
        record = None if key is None else await accounts.find(key)
        if record is None:
            raise link_refusal(request) or _unauthorized(request)
        _check_role(record, path)
        request.state.tenant = record.tenant_id

    return enter


def _bearer(request: Request) -> str | None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _unauthorized(request: Request) -> GenflowError:
    message = "Send a key that works as `Authorization: Bearer gf_…`; `genflow keys create NAME` makes one."
    if "x-api-key" in request.headers:
        message = f"X-API-Key is not read here. {message}"
    return GenflowError(
        "unauthorized",
        message,
        status=401,
        details={"field": "Authorization"},
        headers={"WWW-Authenticate": "Bearer"},
    )


def _check_role(record: KeyRecord, path: str) -> None:
    if path.startswith(FLEET) and not record.looks_after_the_fleet:
        message = f"The key {record.name} may not look after the fleet; that takes a key of the role operator."
        raise GenflowError(
            "forbidden", message, status=403, details={"field": "Authorization", "got": record.role.value}
        )
