"""What the routes share, and the small readings of a request that more than one of them needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from fastapi import Request

from genflow.api.errors import invalid_request, not_found
from genflow.api.hub import Hub
from genflow.api.ids import canonical_uuid
from genflow.api.links import Links, links_of
from genflow.api.making import Maker
from genflow.api.signing import Signer
from genflow.api.waiting import Ends
from genflow.errors import clean_text
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.store import Store

_KEY = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Context:
    """The rooms below, as one process's routes use them."""

    queue: Queue
    store: Store
    settings: Settings
    signer: Signer
    hub: Hub
    maker: Maker
    ends: Ends

    def links(self, request: Request) -> Links:
        """The addresses for this request's answer."""
        return links_of(request, self.settings.public_url, self.signer)


def tenant_of(request: Request) -> int:
    """Whose jobs, assets and keys this request may touch: those of its API key, or the first tenant's without keys."""
    tenant: int = getattr(request.state, "tenant", 1)
    return tenant


def uuid_of(what: str, given: str) -> UUID:
    """The id in a path. Whatever is no canonical UUID names nothing: GenflowError 404 `not_found`."""
    found = canonical_uuid(given)
    if found is None:
        raise not_found(what, given)
    return found


def flag_of(name: str, given: str | None) -> bool:
    """A truth value of the query. GenflowError 400 `invalid_request` for anything but true and false."""
    if given not in (None, "true", "false"):
        raise invalid_request(f"{name} must be true or false.", field=name, got=clean_text(given, 80))
    return given == "true"


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key, or None.

    Raises GenflowError 400 `invalid_request` unless it is one text of 1 to 255 printable ASCII characters.
    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        message = "The Idempotency-Key must be one text of 1 to 255 printable ASCII characters."
        raise invalid_request(message, field="Idempotency-Key", got=clean_text(", ".join(keys), 300))
    return keys[0]
