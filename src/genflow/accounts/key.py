"""What a key looks like, and what is kept of it. Pure but for chance.

A key is `gf_`, eight digits by which it is found, and 256 random bits. Those need no slow hash, unlike a password: of
the key only its SHA-256 is kept, which nobody can turn back.
"""

from __future__ import annotations

import hashlib
import re
import secrets

_KEY = re.compile(r"(gf_[0-9a-f]{8})_[A-Za-z0-9_-]{43}")


def new_key() -> str:
    """A key that nobody has."""
    return f"gf_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def prefix_of(key: str) -> str | None:
    """The part of a key by which it is found and shown; None for what can be no key."""
    found = _KEY.fullmatch(key)
    return None if found is None else found[1]


def hash_of(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key.encode()).digest()
