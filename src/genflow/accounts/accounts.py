"""Keys in the database: made, found, revoked, rotated."""

from __future__ import annotations

import hmac
import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from genflow.accounts.key import hash_of, new_key, prefix_of
from genflow.errors import GenflowError
from genflow.protocol import boottime
from genflow.queue.writer import Row, Writer

HOUSE = 1
"""The tenant of whoever runs the installation: its operators look after the fleet."""
REMEMBERED_S = 3.0
"""Seconds for which what was found of a key is believed, and that there are any: so long a revoked one works on."""
REMEMBERED = 1_000
"""Keys that are remembered at a time."""


class Role(StrEnum):
    """What a key is for."""

    SUBMIT = "submit"
    """Jobs, files, batches and dead letters of its tenant."""
    OPERATOR = "operator"
    """The same; one of the house also looks after servers and workers."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known of a key. The key itself is known to whoever it was shown to."""

    id: int
    name: str
    prefix: str
    sha256: bytes
    tenant_id: int
    tenant: str
    role: Role
    created_at: datetime
    ends_at: datetime | None
    last_used_at: datetime | None

    @property
    def looks_after_the_fleet(self) -> bool:
        """Whether it may see and change servers and workers, which are everybody's."""
        return self.role is Role.OPERATOR and self.tenant_id == HOUSE


class Accounts:
    """The keys of an installation."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._found: OrderedDict[str, tuple[float, KeyRecord | None]] = OrderedDict()
        self._any_at = -math.inf
        self._any = False

    async def create(self, name: str, *, role: Role = Role.SUBMIT, tenant: str = "house") -> tuple[str, KeyRecord]:
        """A new key, which is shown this once, and its record; the tenant is made where it is new.

        GenflowError `key_exists` where a key of this name works already.
        """
        key = new_key()
        rows = await self._writer.write(
            "create_key",
            {"name": name, "prefix": prefix_of(key), "sha256": hash_of(key), "role": role.value, "tenant": tenant},
        )
        if not rows:
            raise GenflowError(
                "key_exists", f"there is a key {name!r} already: rotate it, or choose another name", status=409
            )
        return key, _record(rows[0])

    async def listed(self) -> list[KeyRecord]:
        """All keys that work, by tenant and name."""
        return [_record(row) for row in await self._writer.write("key_list", {})]

    async def revoke(self, name: str) -> None:
        """End a key, and what it was rotated from, now. GenflowError `not_found`."""
        if not await self._writer.write("revoke_key", {"name": name, "keep_s": 0.0}):
            raise _unknown(name)

    async def rotate(self, name: str, *, keep_s: float) -> tuple[str, KeyRecord]:
        """A new key in place of this one, which works for `keep_s` seconds more. GenflowError `not_found`."""
        key = new_key()
        rows = await self._writer.write(
            "rotate_key", {"name": name, "prefix": prefix_of(key), "sha256": hash_of(key), "keep_s": keep_s}
        )
        if not rows:
            raise _unknown(name)
        return key, _record(rows[0])

    async def any(self) -> bool:
        """Whether a key was ever made, as known a moment ago."""
        if not self._any and boottime() - self._any_at > REMEMBERED_S:
            self._any = bool((await self._writer.write("any_key", {}))[0]["found"])
            self._any_at = boottime()
        return self._any

    async def find(self, key: str) -> KeyRecord | None:
        """The record of a key that works; None for every other text. Raises psycopg's own errors in an outage."""
        prefix = prefix_of(key)
        if prefix is None:
            return None
        at, found = self._found.get(prefix, (-math.inf, None))
        if boottime() - at > REMEMBERED_S:
            rows = await self._writer.write("find_key", {"prefix": prefix})
            found = _record(rows[0]) if rows else None
            self._found[prefix] = (boottime(), found)
            self._found.move_to_end(prefix)
            while len(self._found) > REMEMBERED:
                self._found.popitem(last=False)
        if found is None or not hmac.compare_digest(found.sha256, hash_of(key)):
            return None
        return found


def _record(row: Row) -> KeyRecord:
    return KeyRecord(
        id=row["id"],
        name=row["name"],
        prefix=row["prefix"],
        sha256=bytes(row["sha256"]),
        tenant_id=row["tenant_id"],
        tenant=row["tenant"],
        role=Role(row["role"]),
        created_at=row["created_at"],
        ends_at=row["ends_at"],
        last_used_at=row["last_used_at"],
    )


def _unknown(name: str) -> GenflowError:
    return GenflowError("not_found", f"there is no key {name!r} that works", status=404)
