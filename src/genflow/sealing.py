"""Secrets of jobs, sealed while the job lives: AES-256-GCM, bound to the job, under keys from the settings. Pure.

A sealed text is a version, the key's mark, a nonce of its own, and what AES-GCM made of the text with the job's id
beside it: in another job's row it opens nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from genflow.errors import GenflowError

KEY_BYTES = 32

_VERSION = b"\x01"
_MARK_BYTES, _NONCE_BYTES = 4, 12


class CantOpen(GenflowError):
    """No key of this process opens the secret."""

    def __init__(self) -> None:
        super().__init__(
            "sealing_key_missing",
            "The job's Comfy key is sealed with a key that this worker does not have; give it the API's sealing_key.",
            status=503,
        )


def read_keys(text: str) -> list[bytes]:
    """The keys in a setting: 32 bytes each as base64, separated by commas; the first seals. ValueError for others."""
    keys = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            key = base64.b64decode(part, validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a sealing key is {KEY_BYTES} random bytes as base64: openssl rand -base64 {KEY_BYTES}")
        keys.append(key)
    return keys


class Sealer:
    """Seals with its first key and opens with each, so that a new key may come before the old one goes."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {_mark(key): key for key in reversed(keys)}
        self._first = keys[0] if keys else None

    def seal(self, job: UUID, secret: dict[str, Any]) -> bytes | None:
        """The secret, sealed for this job; None without a key: what can't be kept well is not kept."""
        if self._first is None:
            return None
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = _cipher(self._first).encrypt(nonce, json.dumps(secret).encode(), job.bytes)
        return _VERSION + _mark(self._first) + nonce + sealed

    def open(self, job: UUID, sealed: bytes) -> dict[str, Any]:
        """What was sealed for this job. CantOpen where no key of ours opens it, or it was changed."""
        from cryptography.exceptions import InvalidTag

        mark, rest = sealed[1 : 1 + _MARK_BYTES], sealed[1 + _MARK_BYTES :]
        key = self._keys.get(mark) if sealed[:1] == _VERSION else None
        if key is None:
            raise CantOpen()
        try:
            secret: dict[str, Any] = json.loads(
                _cipher(key).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], job.bytes)
            )
        except (InvalidTag, ValueError):
            raise CantOpen() from None
        return secret


def _mark(key: bytes) -> bytes:
    return hashlib.sha256(b"genflow sealing key" + key).digest()[:_MARK_BYTES]


def _cipher(key: bytes) -> Any:
    # Here, not above: most processes never seal anything.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
