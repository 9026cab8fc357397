"""Links that carry their own permission, for an `<img>` and whoever else sends no key: for one asset, until a time."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

LINKS = "links"
"""Name of the installation's secret that links are signed with."""

_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs links that stand for `ttl_s` seconds at least, and at most half as long again."""

    secret: bytes
    ttl_s: float

    def query(self, asset: UUID, now: float) -> tuple[str, int]:
        """The query of a link to this asset, and the Unix time at which it ends.

        The end moves in steps, so that a client that looks again and again gets one link, which its cache knows.
        """
        step = max(1.0, self.ttl_s / 2)
        expires = math.ceil((math.floor(now / step) + 1) * step + self.ttl_s)
        return urlencode({"expires": expires, "signature": self._signature(asset, expires)}), expires

    def opens(self, asset: str, query: Mapping[str, str], now: float) -> bool:
        """Whether this query is one of ours, for this asset, and not over."""
        expires = query.get("expires", "")
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12) or int(expires) < now:
            return False
        try:
            wanted = self._signature(UUID(asset), int(expires))
        except ValueError:
            return False
        return hmac.compare_digest(wanted.encode(), query.get("signature", "").encode())

    def _signature(self, asset: UUID, expires: int) -> str:
        told = f"{asset} {expires}".encode()
        return hmac.new(self.secret, told, hashlib.sha256).hexdigest()[:_DIGITS]
