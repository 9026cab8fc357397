"""Every refusal leaves the API in one envelope: `{"error": {"code", "message", "details"}}`.

Whatever goes wrong, FastAPI's own checks and the unexpected included, a client reads a stable code, one English
sentence and the id of its request; never a traceback. docs/reference/errors.md lists the codes.
"""

from __future__ import annotations

import time
import uuid
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from genflow.errors import GenflowError, clean_text
from genflow.queue.writer import OUTAGE
from genflow.telemetry import metrics

log = structlog.get_logger()

RETRY_AFTER_S = 2
"""Seconds after which a client may try again while the database or the store is away."""

REQUEST_ID_HEADER = "X-Comfy-Request-Id"

_CODE_OF_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
}


def envelope(error: GenflowError) -> JSONResponse:
    """The error as the answer that a client reads. What passes by itself says when to try again."""
    if error.status == 503:
        error.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    body = {"error": {"code": error.code, "message": error.message, "details": error.details}}
    return JSONResponse(body, status_code=error.status, headers=error.headers)


def not_found(what: str, given: str) -> GenflowError:
    """No such thing, or no longer: `what` names its kind, `given` is the id that the client sent."""
    message = f"There is no {what} {clean_text(given, 80)}, or it is past its time."
    return GenflowError("not_found", message, status=404, details={"field": "id", "got": clean_text(given, 80)})


def invalid_request(message: str, *, field: str | None = None, status: int = 400, got: Any = None) -> GenflowError:
    """The refusal of a request whose form is wrong, before anything in it was looked at."""
    return GenflowError("invalid_request", message, status=status, details={"field": field, "got": got})


async def _genflow_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, GenflowError)  # noqa: S101 - registered for this class alone
    return envelope(error)


async def _http_exception(request: Request, error: Exception) -> JSONResponse:
    """What Starlette refuses by itself: unknown routes, wrong methods."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    path = clean_text(request.url.path, 200)
    messages = {
        404: f"There is nothing at {path}.",
        405: f"{request.method} is not possible at {path}; allowed is {(error.headers or {}).get('Allow', 'nothing')}.",
    }
    code = _CODE_OF_STATUS.get(error.status_code, "invalid_request")
    message = messages.get(error.status_code, HTTPStatus(error.status_code).description or str(error.detail))
    headers = dict(error.headers or {})
    return envelope(GenflowError(code, message, status=error.status_code, headers=headers))


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    """What FastAPI's own checks refuse; its default body would read as `invalid_workflow` in the SDK."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    details = {"field": field, "reason": first["type"], "got": clean_text(str(first.get("input")), 100)}
    return envelope(GenflowError("invalid_request", f"{field}: {first['msg']}.", details=details))


async def _outage(request: Request, error: Exception) -> JSONResponse:
    """The database is away for longer than a request waits for it."""
    log.warning("request_without_database", path=request.url.path, error=str(error).strip()[:200])
    return envelope(GenflowError("database_unavailable", "The database is away. Try again soon.", status=503))


def handle_errors(app: FastAPI) -> None:
    """Turn every error of `app` into the envelope."""
    app.add_exception_handler(GenflowError, _genflow_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _validation_error)
    for outage in OUTAGE:
        app.add_exception_handler(outage, _outage)
    app.add_middleware(RequestGuard)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _count(scope: Scope, status: int, seconds: float) -> None:
    # The router leaves the route that it found; its pattern, not the path, keeps the labels few.
    route = getattr(scope.get("route"), "path", "none")
    method = scope["method"] if scope["method"] in _METHODS else "other"
    metrics.REQUESTS.labels(method, route, str(status)).inc()
    metrics.REQUEST_SECONDS.labels(route).observe(seconds)


class RequestGuard:
    """Gives each request an id, on the answer and in the log, and answers what nobody expected with a plain 500."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started, began = False, time.monotonic()

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _count(scope, message["status"], time.monotonic() - began)
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_id)
            except ClientDisconnect:
                log.debug("client_left", path=scope["path"])
            except Exception as error:
                log.error(
                    "request_failed", method=scope["method"], path=scope["path"], exc_info=error, next="genflow health"
                )
                if started:
                    # Half an answer is out: only a broken connection still says that it is not whole.
                    raise
                message = f"Something went wrong in the service. Its log names the cause under request {request_id}."
                answer = envelope(GenflowError("upstream_error", message, status=500))
                await answer(scope, receive, send_with_id)
