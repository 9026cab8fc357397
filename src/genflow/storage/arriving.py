"""Bytes on their way into a store: cut into even pieces, counted against a limit, and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from blake3 import blake3

from genflow.errors import GenflowError
from genflow.storage.store import StoredBlob

CHUNK_BYTES = 1024 * 1024
"""Bytes that a store takes, and gives out, at a time."""


class Hashes:
    """What is known of the bytes so far."""

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._sha256 = hashlib.sha256()
        self._size = 0

    def update(self, data: bytearray) -> None:
        """Take the next bytes in."""
        self._blake3.update(data)
        self._sha256.update(data)
        self._size += len(data)

    def blob(self) -> StoredBlob:
        """All that came, as a blob."""
        return StoredBlob(self._blake3.digest(), self._sha256.digest(), self._size)


async def gathered(chunks: AsyncIterator[bytes], limit_bytes: int | None) -> AsyncIterator[bytearray]:
    """The same bytes in pieces of CHUNK_BYTES to twice that; only the last may be shorter, or empty.

    GenflowError 413 `payload_too_large` as soon as more than `limit_bytes` came.
    """
    buffer = bytearray()
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if limit_bytes is not None and size > limit_bytes:
            raise GenflowError(
                "payload_too_large",
                f"more than {limit_bytes} bytes came",
                status=413,
                details={"limit": limit_bytes, "got": size},
            )
        for piece in pieces(chunk):
            buffer += piece
            if len(buffer) >= CHUNK_BYTES:
                full, buffer = buffer, bytearray()
                yield full
    yield buffer


def pieces(chunk: bytes) -> list[memoryview]:
    """The chunk in pieces of at most CHUNK_BYTES, nothing copied."""
    view = memoryview(chunk)
    return [view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES)]
