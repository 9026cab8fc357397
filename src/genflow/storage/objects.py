"""Blobs in an object store: S3 and what speaks like it, Google Cloud Storage, Azure.

A blob's name is its hash, known only after its last byte. So bytes gather here first, in memory up to one part, past
that in a file without a name that no crash leaves behind; then they go up under their own name, in parts of one
upload that is given up when anything fails. Nothing is ever in the store under another name: no copy on the server,
which S3 refuses past 5 GB, and nothing half to be found and cleaned up. Names that people read are not kept.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import obstore
import structlog
from blake3 import blake3
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from genflow.errors import clean_text
from genflow.media import shown_in_place
from genflow.storage.arriving import CHUNK_BYTES, Hashes, gathered, pieces
from genflow.storage.media import HEAD_BYTES, media_type
from genflow.storage.store import (
    HASH_BYTES,
    BlobDamaged,
    BlobMissing,
    Expected,
    HashMismatch,
    StoredBlob,
    blob_path,
    checked_range,
    storage_unavailable,
)
from genflow.storage.threads import Threads, to_its_end

if TYPE_CHECKING:
    from obstore import ListStream, ObjectMeta

log = structlog.get_logger()

T = TypeVar("T")
Objects = S3Store | GCSStore | AzureStore

PART_BYTES = 5 * 1024 * 1024
"""Bytes of one part of an upload (S3 takes no smaller ones), and the most of a blob that gathers in memory."""
PARTS_AT_ONCE = 2
MOST_PARTS = 9_000
"""S3 takes 10,000 parts of one upload: past 45 GB the parts grow."""
READ_BYTES = 4 * 1024 * 1024
"""Bytes that one request reads: none of them outlives a request's time limit, however slow the reader is."""
SETTLE_S = 1.0
"""Seconds that processes which make the marker at once give each other, where the store can't let one win."""
_MARKER = "marker"
_CANDIDATES = "markers"

# A thread of the client's that still hands over its last answer while the interpreter goes away aborts the process.
atexit.register(time.sleep, 0.1)


class ObjectStore:
    """A store in a bucket, or below a prefix of one; any number of processes on any machines share it.

    `place` names it to people. `arriving` is a folder for blobs of more than one part on their way up. Raises
    GenflowError `storage_unavailable` where that folder can't be used.
    """

    def __init__(self, objects: Objects, *, place: str, arriving: Path) -> None:
        self._objects = objects
        self._place = place
        self._arriving = arriving
        self._threads = Threads()
        self._cannot_sign = False
        try:
            arriving.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_unavailable(f"use the folder {arriving}", error.strerror or str(error)) from error

    async def put(
        self, chunks: AsyncIterator[bytes], limit_bytes: int | None = None, *, expected: Expected | None = None
    ) -> StoredBlob:
        """See Store.put. A canceled upload is given up at the store too before this returns."""
        arrived = _Arrived(self._arriving)
        try:
            async for part in gathered(chunks, limit_bytes):
                await self._answer("keep a blob on its way", self._threads.run(arrived.write, part))
            blob = arrived.hashes.blob()
            if expected is not None and (wanted := expected()) not in (None, blob.hash):
                raise HashMismatch(wanted, blob.hash)
            await self._upload(arrived, blob)
            return blob
        finally:
            await self._threads.run(arrived.close)

    async def read(self, hash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """See Store.read. A blob that is deleted meanwhile breaks off with BlobMissing."""
        checked_range(start, end)
        size = await self.size(hash)
        if size is None:
            await self.marker()  # a store that isn't there has no blobs either, but they aren't lost
            raise BlobMissing(hash)
        stop = size if end is None else min(end, size)
        check = blake3() if (start, stop) == (0, size) else None
        at, last = start, False
        while not last:
            data = await self._read_range(hash, at, min(at + READ_BYTES, stop))
            at += len(data)
            last = at >= stop or not data
            if check is not None:
                await self._threads.run(check.update, data)
                if last and check.digest() != hash:
                    log.error("blob_damaged", store=self._place, hash=hash.hex(), next="genflow health")
                    raise BlobDamaged(hash)
            for piece in pieces(data):
                yield bytes(piece)

    async def size(self, hash: bytes) -> int | None:
        """See Store.size."""
        try:
            found = await self._answer("look at a blob", obstore.head_async(self._objects, blob_path(hash)))
        except FileNotFoundError:
            return None
        return found["size"]

    async def delete(self, hash: bytes) -> None:
        """See Store.delete."""
        try:
            await self._answer("delete a blob", obstore.delete_async(self._objects, blob_path(hash)))
        except FileNotFoundError:
            return

    async def old(self, before_s: float) -> AsyncIterator[bytes]:
        """See Store.old."""
        latest = datetime.now(UTC) - timedelta(seconds=before_s)
        pages = obstore.list(self._objects, prefix="blobs")
        while page := await self._answer("list blobs", _page(pages)):
            for each in page:
                name = each["path"].rpartition("/")[2]
                if each["last_modified"] < latest and len(name) == 2 * HASH_BYTES:
                    with suppress(ValueError):
                        yield bytes.fromhex(name)

    async def name(self, folder: str, names: Mapping[str, bytes]) -> None:
        """See Store.name: an object store has no links, and a copy would cost as much as the blob."""

    async def unname(self, folder: str) -> None:
        """See Store.unname."""

    async def signed_url(self, hash: bytes, expires_s: float) -> str | None:
        """See Store.signed_url. None with credentials that may read but not sign, such as an Azure SAS."""
        if self._cannot_sign:
            return None
        signing = obstore.sign_async(self._objects, "GET", blob_path(hash), timedelta(seconds=expires_s))
        try:
            return await signing
        except (OSError, ValueError, BaseError) as error:
            # Some credentials sign by a call to their cloud: only what will never work is not tried again.
            self._cannot_sign = not _is_away(error)
            log.warning("not_signed", store=self._place, reason=_reason(error), instead="the API serves the bytes")
            return None

    async def marker(self) -> str:
        """See Store.marker. Of several processes that make it at once, the store lets one."""
        found = await self._read_marker()
        if found is None:
            await self._make_marker()
            found = await self._read_marker()
        if found is None:
            self._refuse("keep its marker", OSError("what was just written is not there"))
        return found

    async def _read_marker(self) -> str | None:
        try:
            got = await self._answer("show its marker", obstore.get_async(self._objects, _MARKER))
            data = await self._answer("show its marker", got.bytes_async())
        except FileNotFoundError:
            return None
        return clean_text(bytes(data).decode(errors="replace"), 100)

    async def _make_marker(self) -> None:
        what, mine = "keep its marker", str(uuid.uuid4())
        candidate = f"{_CANDIDATES}/{mine}"
        await self._stored(what, obstore.put_async(self._objects, candidate, mine.encode()))
        if await self._creates_once(candidate, mine.encode()):
            await self._creates_once(_MARKER, mine.encode())
            await self._answer(what, obstore.delete_async(self._objects, candidate))
            return
        # Here the last writer's word would stand, so that all have to write the same: the least of the candidates,
        # which stay. Nobody writes before those who saw no marker, as we did, have had the time to name theirs.
        await asyncio.sleep(SETTLE_S)
        if await self._read_marker() is None:
            listed = obstore.list(self._objects, prefix=_CANDIDATES).collect_async()
            least = min(each["path"].rpartition("/")[2] for each in await self._answer(what, listed))
            await self._stored(what, obstore.put_async(self._objects, _MARKER, least.encode()))

    async def _creates_once(self, path: str, data: bytes) -> bool:
        """Create an object; whether the store refused it, as there is one. Not every store knows to."""
        try:
            await obstore.put_async(self._objects, path, data, mode="create")
        except AlreadyExistsError:
            return True
        except (OSError, BaseError):
            return False  # it has no word for it, or is away: the next call tells
        return False

    async def _upload(self, arrived: _Arrived, blob: StoredBlob) -> None:
        kind = media_type(arrived.head)
        attributes = {
            "Content-Type": kind,
            "Content-Disposition": "inline" if shown_in_place(kind) else "attachment",
        }
        path = blob_path(blob.hash)
        if blob.size <= PART_BYTES:
            whole = await self._threads.run(arrived.read, 0, blob.size)
            put = obstore.put_async(self._objects, path, whole, attributes=attributes, use_multipart=False)
            await self._stored("take a blob", put)
            return
        canceled = asyncio.Event()

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, blob.size, CHUNK_BYTES):
                if canceled.is_set():
                    raise _GivenUpError  # obstore then aborts the upload; dropped, it would be left at the store
                yield await self._threads.run(arrived.read, at, CHUNK_BYTES)

        uploading = asyncio.ensure_future(
            obstore.put_async(
                self._objects, path, parts(), attributes=attributes, use_multipart=True,
                chunk_size=max(PART_BYTES, blob.size // MOST_PARTS), max_concurrency=PARTS_AT_ONCE,
            )
        )  # fmt: skip
        await to_its_end(uploading, canceled.set)
        await self._stored("take a blob", uploading)

    async def _read_range(self, hash: bytes, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        asked = obstore.get_range_async(self._objects, blob_path(hash), start=start, end=end)
        try:
            return bytes(await self._answer("read a blob", asked))
        except FileNotFoundError:
            raise BlobMissing(hash) from None

    async def _stored(self, what: str, asked: Awaitable[T]) -> T:
        """As `_answer`, for what is written: not found is the bucket then."""
        try:
            return await self._answer(what, asked)
        except FileNotFoundError as error:
            self._refuse(what, error)

    async def _answer(self, what: str, asked: Awaitable[T]) -> T:
        """The store's answer. FileNotFoundError where the object isn't there, else `storage_unavailable`."""
        try:
            return await asked
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error) and "ContainerNotFound" not in str(error):
                raise
            self._refuse(what, error)
        except (OSError, BaseError) as error:
            self._refuse(what, error)

    def _refuse(self, what: str, error: Exception) -> NoReturn:
        log.error("storage_unavailable", store=self._place, doing=what, reason=_reason(error), next="genflow health")
        # Not from the cause: its text may hold a signature, and says more of the store than a client needs to know.
        raise storage_unavailable(what, _outline(error)) from None


async def _page(pages: ListStream[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta]:
    """The next objects of a listing; none at its end."""
    try:
        return await pages.__anext__()
    except StopAsyncIteration:
        return ()


class _GivenUpError(Exception):
    """Nobody waits for this upload any more."""


class _Arrived:
    """The bytes of one blob, all of them here: in memory, or past one part in a file without a name."""

    def __init__(self, folder: Path) -> None:
        self.hashes = Hashes()
        self.head = b""
        # Files of this kind are gone with their process, whatever ends it.
        self._file = tempfile.SpooledTemporaryFile(max_size=PART_BYTES, dir=str(folder))  # noqa: SIM115 - see `close`

    def write(self, data: bytearray) -> None:
        if len(self.head) < HEAD_BYTES:
            self.head += bytes(data[: HEAD_BYTES - len(self.head)])
        self.hashes.update(data)
        self._file.write(data)

    def read(self, start: int, length: int) -> bytes:
        self._file.seek(start)
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()


def _is_away(error: Exception) -> bool:
    """Whether it is the network or the other side that failed, and not what we asked."""
    return "HTTP error" in str(error) or "non-2xx status code: 5" in str(error)


def _outline(error: Exception) -> str:
    """What went wrong, for clients: no address, no name of a bucket or an object."""
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return error.strerror or str(error)  # this machine's disk
    answered = re.search(r"non-2xx status code: (\d{3}( [A-Z][A-Za-z]+)*)", str(error))
    return f"it answers {answered[1]}" if answered else "it doesn't answer"


def _reason(error: Exception) -> str:
    """What the store said, for the log: one line without the query of any address, where signatures stand."""
    said = str(error).partition("\n\nDebug source")[0]
    return clean_text(re.sub(r"\?[^\s\"'<>)]+", "?…", " ".join(said.split())), 300)
