"""The one error of genflow that reaches a client, and the codes it may carry.

Every refusal, whatever room it starts in, is raised as `GenflowError` (or a subclass) with a stable code; the API and
the CLI turn it into the contract's envelope. Nothing else may cross the edge.
"""

from __future__ import annotations

from typing import Any


class GenflowError(Exception):
    """A refusal that a client may read.

    `code` is stable and listed in docs/reference/errors.md. `message` is one English sentence that names what was
    wrong and what would be right. `details` holds any of `field`, `reason`, `limit`, `got`, and what the code adds.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 422,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.details = details
        self.headers = headers or {}


def clean_text(text: str, limit: int = 4_000) -> str:
    """Text from outside, fit for Postgres and JSON: no NUL, no lone surrogate, at most `limit` characters."""
    kept = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def at_field(error: GenflowError, field: str) -> GenflowError:
    """The same refusal of one field, under the name that the field has in this request."""
    details = error.details or {}
    old = details.get("field")
    if not isinstance(old, str) or old == field:
        return error
    message = f"{field}: {error.message.removeprefix(f'{old}: ')}"
    return GenflowError(
        error.code, message, status=error.status, details={**details, "field": field}, headers=error.headers
    )
