"""Users' files: records over blobs. Bytes are in the store before their record is, and go with their last record."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from genflow.errors import GenflowError
from genflow.queue.records import KEY_TTL_S, KeyInUse
from genflow.queue.writer import DirectWriter
from genflow.storage.store import StoredBlob

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Added:
    """An asset that was made, or found; `new` says whether its bytes, or the asset itself, are new to its tenant."""

    id: UUID
    new: bool


class AssetInUse(GenflowError):
    """A job that is not over needs the asset."""

    def __init__(self, asset: UUID) -> None:
        super().__init__(
            "asset_in_use",
            f"A job that is not over needs the asset {asset}; delete it once the job has ended.",
            status=409,
            details={"field": "id", "got": str(asset)},
        )


class Files:
    """Records of files. Every method waits through a short outage of the database."""

    def __init__(self, writer: DirectWriter, *, retention_s: float) -> None:
        self._writer = writer
        self._retention_s = retention_s

    async def clock(self) -> datetime:
        """The database's time; to be read before bytes are put into the store that are recorded then."""
        now: datetime = (await self._writer.write("clock", {}))[0]["now"]
        return now

    async def add(
        self,
        blob: StoredBlob,
        *,
        name: str,
        type: str,
        content_type: str,
        began: datetime | None = None,
        tenant: int = 1,
    ) -> UUID:
        """Record a file that is in the store already; its asset. Raises as `upload` does."""
        made = await self.upload(blob, name=name, type=type, content_type=content_type, began=began, tenant=tenant)
        return made.id

    async def upload(
        self,
        blob: StoredBlob,
        *,
        name: str,
        type: str,
        content_type: str,
        began: datetime | None = None,
        tags: Sequence[str] = (),
        keep_s: float | None = None,
        key: str | None = None,
        tenant: int = 1,
    ) -> Added:
        """The same, with what a client may say of it: tags, `keep_s` seconds that it is kept, an idempotency key.

        `began` is what `clock` said before the bytes were put: without it the bytes of a blob that was deleted lately
        are taken for the old ones, and refused.

        Raises KeyInUse, or GenflowError `storage_unavailable` where clean-up is deleting these bytes.
        """
        asset = uuid4()
        rows = await self._writer.write(
            "create_upload",
            {
                "asset": asset,
                "tenant": tenant,
                "hash": blob.hash,
                "sha256": blob.sha256,
                "size": blob.size,
                "name": name,
                "type": type,
                "content_type": content_type,
                "tags": list(tags),
                "began": began,
                "keep_s": self._retention_s if keep_s is None else keep_s,
                "key": key,
                "key_ttl": KEY_TTL_S,
            },
        )
        if not rows:
            await self.check_key(key, tenant=tenant)
            raise GenflowError("storage_unavailable", "This file is being cleaned up; send it again.", status=503)
        return Added(asset, not rows[0]["known"])

    async def check_key(self, key: str | None, *, tenant: int = 1) -> None:
        """Raises KeyInUse where an upload has this idempotency key already."""
        if key is None:
            return
        owners = await self._writer.write("key_owner", {"tenant": tenant, "scope": "upload", "key": key})
        if owners:
            raise KeyInUse(asset_id=owners[0]["job_id"])

    async def from_hash(
        self,
        hash: bytes,
        *,
        name: str | None = None,
        tags: Sequence[str] = (),
        keep_s: float | None = None,
        tenant: int = 1,
    ) -> Added | None:
        """An asset over bytes that this tenant has: a new one, or the one that says the same; None without them."""
        rows = await self._writer.write(
            "asset_from_hash",
            {
                "asset": uuid4(),
                "tenant": tenant,
                "hash": hash,
                "name": name,
                "tags": list(tags),
                "keep_s": self._retention_s if keep_s is None else keep_s,
            },
        )
        return Added(rows[0]["id"], rows[0]["created"]) if rows else None

    async def has(self, hash: bytes, *, tenant: int = 1) -> bool:
        """Whether this tenant has a file of these bytes."""
        return bool(await self._writer.write("has_hash", {"hash": hash, "tenant": tenant}))

    async def delete(self, asset: UUID, *, tenant: int = 1) -> bool:
        """Delete a record; False where there is none. Raises AssetInUse."""
        rows = await self._writer.write("delete_asset", {"asset": asset, "tenant": tenant})
        if rows and rows[0]["needed"]:
            raise AssetInUse(asset)
        return bool(rows)

    async def secret(self, name: str) -> bytes:
        """A secret of this installation, the same for all of its processes; made where it is asked for first."""
        rows = await self._writer.write("secret", {"name": name, "value": secrets.token_bytes(SECRET_BYTES)})
        value: bytes = bytes(rows[0]["value"])
        return value
