"""Ids as clients write them."""

from __future__ import annotations

import re
from uuid import UUID

_CANONICAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def canonical_uuid(given: str) -> UUID | None:
    """The id in a text; None unless it is a UUID in lower case with its hyphens: another spelling names nothing."""
    return UUID(given) if _CANONICAL.fullmatch(given) else None
