"""What only the local store promises: durable in the right order, whole or nothing on a failing disk, names."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genflow.errors import GenflowError
from genflow.storage.arriving import CHUNK_BYTES
from genflow.storage.local import LocalStore
from genflow.storage.store import Store
from tests.support.stores import content, stream

MB = 1024 * 1024


def files(root: Path) -> list[str]:
    """Every file under the store but its marker, as paths inside it."""
    found = [path for path in root.rglob("*") if path.is_file() and path.name != "marker"]
    return sorted(str(path.relative_to(root)) for path in found)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


async def test_a_blob_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_is_confirmed(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that matters for a power cut, in the order in which the disk sees them."""
    seen: list[tuple[str, str]] = []
    written: dict[str, int] = {}
    real_fsync, real_replace, real_mkdir = os.fsync, os.replace, os.mkdir

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        written[path] = os.fstat(handle).st_size
        real_fsync(handle)
        seen.append(("fsync", path))

    def replace(source: Path, target: Path) -> None:
        real_replace(source, target)
        seen.append(("replace", f"{source} {target}"))

    def mkdir(path: Path, mode: int = 0o777) -> None:
        real_mkdir(path, mode)
        seen.append(("mkdir", str(path)))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "mkdir", mkdir)
    blob = await store.put(stream(b"x" * 2_000_000))
    name = blob.hash.hex()
    blobs = root / "blobs"
    first, second = blobs / name[:2], blobs / name[:2] / name[2:4]
    incoming = seen[0][1]
    assert Path(incoming).parent == blobs / "incoming"
    assert written[incoming] == blob.size
    assert seen == [
        ("fsync", incoming),
        ("mkdir", str(first)),
        ("fsync", str(blobs)),
        ("mkdir", str(second)),
        ("fsync", str(first)),
        ("replace", f"{incoming} {second / name}"),
        ("fsync", str(second)),
    ]


async def test_a_store_is_on_the_disk_before_the_first_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    LocalStore(tmp_path / "deep" / "er")
    assert {str(tmp_path), str(tmp_path / "deep"), str(tmp_path / "deep" / "er")} <= set(synced)


async def test_a_deleted_blob_is_read_on_by_who_began(store: Store, root: Path) -> None:
    data = os.urandom(3 * CHUNK_BYTES)
    blob = await store.put(stream(data))
    reading = store.read(blob.hash)
    first = await anext(reading)
    await store.delete(blob.hash)
    assert await store.size(blob.hash) is None
    assert files(root) == []
    assert first + b"".join([chunk async for chunk in reading]) == data


def failing(real: Callable[..., Any], number: int, after: int) -> Callable[..., Any]:
    """`real`, which fails with that error from the call number `after` on."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    return call


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_failing_disk_is_said_and_leaves_no_file(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), number, after=1 if name == "write" else 0))
        with pytest.raises(GenflowError, match=os.strerror(number)) as refusal:
            await store.put(stream(*[bytes(MB)] * 3))
    assert (refusal.value.code, refusal.value.status) == ("storage_unavailable", 503)
    assert files(root) == []
    assert (await store.put(stream(b"room again"))).size == 10


async def test_a_write_that_the_kernel_refuses_is_said_and_leaves_no_file(tmp_path: Path) -> None:
    """No injected error: a process of its own meets its limit on the size of a file."""
    program = """
import asyncio, resource, signal, sys
from pathlib import Path
from genflow.storage.local import LocalStore
from genflow.errors import GenflowError
store = LocalStore(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_500_000, 2_500_000))
async def chunks():
    for _ in range(9):
        yield bytes(1_000_000)
try:
    asyncio.run(store.put(chunks()))
except GenflowError as error:
    print(error.code, error.status)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    answer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines()[-1:] == ["storage_unavailable 503"], answer.stderr
    assert files(tmp_path / "store") == []


async def test_a_canceled_put_leaves_nothing_even_while_it_writes(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = threading.Event(), threading.Event()
    real_write = os.write

    def slow_write(handle: int, data: Any) -> int:
        writing.set()
        assert go_on.wait(30)
        return real_write(handle, data)

    monkeypatch.setattr(os, "write", slow_write)
    putting = asyncio.ensure_future(store.put(stream(bytes(4 * MB))))
    await asyncio.to_thread(writing.wait, 30)
    putting.cancel()
    done, _ = await asyncio.wait([putting], timeout=0.3)
    assert not done, "the file was closed under its writer"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert files(root) == []


async def test_remains_of_a_crash_are_removed_by_age(store: Store, root: Path) -> None:
    incoming = root / "blobs" / "incoming"
    old, fresh = incoming / "old", incoming / "fresh"
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (time.time() - 7 * 3_600,) * 2)
    LocalStore(root)
    assert files(root) == ["blobs/incoming/fresh"]


async def test_folders_tidied_away_are_made_again(store: Store, root: Path) -> None:
    blob = await store.put(stream(b"here"))
    await store.delete(blob.hash)
    name = blob.hash.hex()
    (root / "blobs" / name[:2] / name[2:4]).rmdir()
    (root / "blobs" / name[:2]).rmdir()
    assert await store.put(stream(b"here")) == blob
    assert await content(store, blob.hash) == b"here"


async def test_blobs_are_readable_by_their_owner_only(store: Store, root: Path) -> None:
    await store.put(stream(b"a face"))
    assert (root / files(root)[0]).stat().st_mode & 0o077 == 0
    assert (root / "blobs").stat().st_mode & 0o077 == 0


async def test_the_marker_of_who_was_faster_is_taken(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes the marker between our look and our link."""
    real_link = os.link

    def link(source: Path, target: Path) -> None:
        target.write_text("11111111-1111-4111-8111-111111111111")
        real_link(source, target)

    monkeypatch.setattr(os, "link", link)
    assert await store.marker() == "11111111-1111-4111-8111-111111111111"
    assert files(root) == []


async def test_a_folder_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GenflowError, match=str(tmp_path / "file")) as refusal:
        LocalStore(tmp_path / "file" / "store")
    assert (refusal.value.code, refusal.value.status) == ("storage_unavailable", 503)


async def test_blobs_get_names_that_a_person_can_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    blob = await store.put(stream(b"a picture"))
    for _ in range(2):
        await store.name("job", {"3-solid_00001_.png": blob.hash, "../../etc/passwd": blob.hash, "": blob.hash})
    found = {path.name: path.read_bytes() for path in (tmp_path / "jobs" / "job").iterdir()}
    assert found == {name: b"a picture" for name in ("3-solid_00001_.png", "_.._etc_passwd", "_")}
    moved = await asyncio.to_thread(tmp_path.rename, tmp_path.with_name("moved"))
    assert (moved / "jobs" / "job" / "3-solid_00001_.png").read_bytes() == b"a picture", "the folder may be moved"
    again = LocalStore(moved)
    await again.unname("job")
    await again.unname("job")
    assert list((moved / "jobs").iterdir()) == []
    assert await again.size(blob.hash) == len(b"a picture")
