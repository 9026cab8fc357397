"""What a store of blobs offers, whichever kind it is: a local disk or an object store.

A store knows bytes and hashes only. Who may see a blob and when it may go is the database's to decide: `put` of the
same content twice is one blob, and nobody deletes a blob that a row still needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from genflow.errors import GenflowError

HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What is known of stored bytes: their identity (BLAKE3), their SHA-256 and their size in bytes."""

    hash: bytes
    sha256: bytes
    size: int


Expected = Callable[[], bytes | None]
"""The BLAKE3 that bytes must have, if any: asked once all have come, for a form may name it behind its file."""


class HashMismatch(GenflowError):
    """The bytes that came are not those that were announced; nothing of them was kept."""

    def __init__(self, expected: bytes, got: bytes) -> None:
        super().__init__(
            "hash_mismatch",
            "The file's bytes are not those of expected_hash: it was cut or changed on the way, or the hash is wrong.",
            status=409,
            details={"field": "expected_hash", "limit": f"blake3:{expected.hex()}", "got": f"blake3:{got.hex()}"},
        )


class BlobMissing(GenflowError):
    """The store has no blob of that hash."""

    def __init__(self, hash: bytes) -> None:
        super().__init__("blob_missing", f"the store has no blob {hash.hex()}", status=404)


class BlobDamaged(GenflowError):
    """The stored bytes are no longer those that were put."""

    def __init__(self, hash: bytes) -> None:
        super().__init__("blob_damaged", f"the blob {hash.hex()} is damaged in the store", status=500)


def storage_unavailable(what: str, reason: str) -> GenflowError:
    """The store can't do it now (disk full, read-only, broken, out of reach); the same call may succeed later."""
    return GenflowError("storage_unavailable", f"the store can't {what}: {reason}", status=503)


def blob_path(hash: bytes) -> str:
    """Where a blob stands in its store. ValueError for what is no hash."""
    if len(hash) != HASH_BYTES:
        raise ValueError(f"a blob's hash has {HASH_BYTES} bytes, not {len(hash)}")
    name = hash.hex()
    return f"blobs/{name[:2]}/{name[2:4]}/{name}"


def checked_range(start: int, end: int | None) -> None:
    """ValueError for a range that no blob can have."""
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"no range of a blob: {start} to {end}")


class Store(Protocol):
    """A store of blobs. All methods raise GenflowError `storage_unavailable` when the store itself fails."""

    async def put(
        self, chunks: AsyncIterator[bytes], limit_bytes: int | None = None, *, expected: Expected | None = None
    ) -> StoredBlob:
        """Keep the bytes; once this returns they survive a power cut. Memory use doesn't grow with their number.

        Raises GenflowError `payload_too_large` as soon as more than `limit_bytes` came, HashMismatch where their BLAKE3
        is not what `expected` says, and whatever `chunks` raises; then nothing is kept.
        """
        ...

    def read(self, hash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to, not including, `end` (None = to the end), in bounded chunks.

        Raises, while iterated, BlobMissing (before the first chunk) or, for a whole blob, BlobDamaged instead of the
        last chunk. ValueError for a range that can't be.
        """
        ...

    async def size(self, hash: bytes) -> int | None:
        """Size in bytes; None when there is no such blob."""
        ...

    async def delete(self, hash: bytes) -> None:
        """Remove the blob, if it is there."""
        ...

    def old(self, before_s: float) -> AsyncIterator[bytes]:
        """The hashes of all blobs that were last put more than `before_s` seconds ago, in any order.

        A walk through the whole store, in bounded memory and without haste; what changes meanwhile may be missed.
        """
        ...

    async def name(self, folder: str, names: Mapping[str, bytes]) -> None:
        """Give blobs names that a person can read, together in a folder. A convenience: a store may do nothing."""
        ...

    async def unname(self, folder: str) -> None:
        """Take the names of a folder away again, if there are any; the blobs stay."""
        ...

    async def signed_url(self, hash: bytes, expires_s: float) -> str | None:
        """An address at which the store itself gives the blob to whoever has it, for so many seconds.

        None where it can't. Nobody looks whether the blob is there.
        """
        ...

    async def marker(self) -> str:
        """A UUID made once in the store: two processes that read different ones use different stores."""
        ...
