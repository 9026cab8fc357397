"""Blobs on a local disk: `<root>/blobs/ab/cd/<hash>`, each written whole beside the others before it gets its name.

The order that makes a confirmed blob survive a power cut: write, fsync the file, make its folders (fsync what holds
them), rename, fsync the folder. Bytes arrive in `<root>/blobs/incoming`, on the same file system, because their name
is known only after the last of them. All file work and hashing happens in threads of the store's own.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog
from blake3 import blake3

from genflow.storage.arriving import CHUNK_BYTES, Hashes, gathered
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
from genflow.storage.threads import Threads

log = structlog.get_logger()

T = TypeVar("T")

STALE_S = 6 * 3600.0


class LocalStore:
    """A store in a folder; several processes may share it. Files are readable by our own user only.

    Incoming files that nobody wrote to for `stale_s` seconds are remains of a crash and are removed at start.
    Raises GenflowError `storage_unavailable` when the folder can't be used.
    """

    def __init__(self, root: Path, *, stale_s: float = STALE_S) -> None:
        self._root = root.absolute()
        self._blobs = self._root / "blobs"
        self._incoming = self._blobs / "incoming"
        self._threads = Threads()
        self._durable: set[Path] = set()  # folders whose own entry is known to be on the disk
        try:
            new = [folder for folder in (self._root, *self._root.parents) if not folder.exists()]
            self._root.mkdir(parents=True, exist_ok=True)
            self._blobs.mkdir(mode=0o700, exist_ok=True)
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            for folder in (*(folder.parent for folder in new), self._root, self._blobs):
                _sync_folder(folder)
            self._remove_stale(stale_s)
        except OSError as error:
            raise storage_unavailable(f"use the folder {self._root}", error.strerror or str(error)) from error

    async def put(
        self, chunks: AsyncIterator[bytes], limit_bytes: int | None = None, *, expected: Expected | None = None
    ) -> StoredBlob:
        """See Store.put. A full disk leaves no file behind."""
        incoming = _Incoming(self._incoming)
        try:
            await self._run("make a file", incoming.open)
            async for part in gathered(chunks, limit_bytes):
                await self._run("write", incoming.write, part)
            return await self._run("write", self._finish, incoming, None if expected is None else expected())
        finally:
            await self._run("remove a file", incoming.discard)

    async def read(self, hash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """See Store.read. A blob that is deleted meanwhile is still read to its end."""
        checked_range(start, end)
        file = await self._run("open a blob", _open_if_there, self._path(hash))
        if file is None:
            raise BlobMissing(hash)
        try:
            size = (await self._run("read", os.fstat, file)).st_size
            stop = size if end is None else min(end, size)
            check = blake3() if (start, stop) == (0, size) else None
            at, last = start, False
            while not last:
                chunk = await self._run("read", _read_chunk, file, at, stop, check)
                at += len(chunk)
                last = at >= stop or not chunk
                if last and check is not None and check.digest() != hash:
                    log.error("blob_damaged", root=str(self._root), hash=hash.hex(), next="genflow health")
                    raise BlobDamaged(hash)
                if chunk:
                    yield chunk
        finally:
            await self._run("close a blob", os.close, file)

    async def size(self, hash: bytes) -> int | None:
        """See Store.size."""
        return await self._run("look at a blob", _size_if_there, self._path(hash))

    async def delete(self, hash: bytes) -> None:
        """See Store.delete. The removal is on the disk too: a blob without its row would never be looked for again."""
        path = self._path(hash)

        def remove() -> None:
            try:
                path.unlink()
            except FileNotFoundError:
                return
            _sync_folder(path.parent)

        await self._run("delete a blob", remove)

    async def old(self, before_s: float) -> AsyncIterator[bytes]:
        """See Store.old."""
        latest = time.time() - before_s
        for first in await self._run("list blobs", _folders, self._blobs):
            for second in await self._run("list blobs", _folders, first):
                for hash in await self._run("list blobs", _blobs_until, second, latest):
                    yield hash

    async def name(self, folder: str, names: Mapping[str, bytes]) -> None:
        """See Store.name: links in `<root>/jobs/<folder>/`. Not synced: the database knows all without them."""
        place = self._root / "jobs" / _plain(folder)

        def link() -> None:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, hash in names.items():
                path = place / _plain(name)
                path.unlink(missing_ok=True)
                path.symlink_to(os.path.relpath(self._path(hash), place))

        await self._run("name a blob", link)

    async def unname(self, folder: str) -> None:
        """See Store.unname."""
        place = self._root / "jobs" / _plain(folder)
        await self._run("take names away", lambda: shutil.rmtree(place, ignore_errors=True))

    async def signed_url(self, hash: bytes, expires_s: float) -> str | None:
        """See Store.signed_url: none, for nobody but us serves this folder."""
        return None

    async def marker(self) -> str:
        """See Store.marker. Of several processes that make it at once, one wins and all read the winner's."""
        return await self._run("keep its marker", self._marker)

    def _marker(self) -> str:
        path = self._root / "marker"
        if not path.exists():
            part = self._incoming / f"marker.{uuid.uuid4().hex}"
            try:
                with part.open("x") as file:
                    file.write(str(uuid.uuid4()))
                    file.flush()
                    os.fsync(file.fileno())
                os.link(part, path)
            except FileExistsError:
                pass  # another one was faster
            finally:
                part.unlink(missing_ok=True)
        _sync_folder(self._root)
        return path.read_text()

    def _path(self, hash: bytes) -> Path:
        return self._root / blob_path(hash)

    def _finish(self, incoming: _Incoming, expected: bytes | None) -> StoredBlob:
        blob = incoming.seal()
        if expected not in (None, blob.hash):
            raise HashMismatch(expected, blob.hash)
        path = self._path(blob.hash)
        self._make_folders(path)
        # Also where the name is taken: our bytes are on the disk, theirs may not be yet, or may be damaged.
        try:
            os.replace(incoming.path, path)
        except FileNotFoundError:  # somebody tidied empty folders away
            self._durable.clear()
            self._make_folders(path)
            os.replace(incoming.path, path)
        _sync_folder(path.parent)
        return blob

    def _make_folders(self, path: Path) -> None:
        for folder in (path.parent.parent, path.parent):
            if folder not in self._durable:
                folder.mkdir(mode=0o700, exist_ok=True)
                _sync_folder(folder.parent)
                self._durable.add(folder)

    def _remove_stale(self, stale_s: float) -> None:
        oldest = time.time() - stale_s
        for entry in os.scandir(self._incoming):
            try:
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
                    log.info("stale_file_removed", path=entry.path)
            except FileNotFoundError:
                continue  # another process tidies too

    async def _run(self, what: str, call: Callable[..., T], *arguments: object) -> T:
        try:
            return await self._threads.run(call, *arguments)
        except OSError as error:
            log.error(
                "storage_unavailable", root=str(self._root), doing=what, reason=str(error), next=f"df -h {self._root}"
            )
            raise storage_unavailable(what, error.strerror or str(error)) from error


class _Incoming:
    """A file that has no blob's name yet, and the hashes of what was written to it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / uuid.uuid4().hex
        self._file: int | None = None
        self._hashes = Hashes()

    def open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, data: bytearray) -> None:
        self._hashes.update(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle(), view) :]

    def seal(self) -> StoredBlob:
        """To the disk with it; from here on only its name is missing."""
        os.fsync(self._handle())
        self._close()
        return self._hashes.blob()

    def discard(self) -> None:
        """Remove the file unless it got its name."""
        try:
            self._close()
        finally:
            self.path.unlink(missing_ok=True)

    def _handle(self) -> int:
        if self._file is None:
            raise ValueError("the file is not open")
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def _open_if_there(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _size_if_there(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _folders(parent: Path) -> list[Path]:
    """The folders that blobs of one beginning lie in."""
    try:
        return [Path(entry.path) for entry in os.scandir(parent) if len(entry.name) == 2 and entry.is_dir()]
    except FileNotFoundError:  # somebody tidied empty folders away
        return []


def _blobs_until(folder: Path, latest: float) -> list[bytes]:
    """The blobs in a folder that were written before `latest`, in seconds since 1970."""
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError, ValueError):
                if len(hash := bytes.fromhex(entry.name)) == HASH_BYTES and entry.stat().st_mtime < latest:
                    found.append(hash)
    return found


def _read_chunk(file: int, at: int, stop: int, check: blake3 | None) -> bytes:
    chunk = os.pread(file, max(0, min(CHUNK_BYTES, stop - at)), at)
    if check is not None:
        check.update(chunk)
    return chunk


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(name: str) -> str:
    """A file name of one part, whatever a node or a person called it."""
    kept = "".join("_" if character == "/" or not character.isprintable() else character for character in name)
    return kept.encode()[:200].decode(errors="ignore").lstrip(".") or "_"
