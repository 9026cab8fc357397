"""What every store promises, on a disk and in a bucket: one blob per content, whole or nothing, flat in memory."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from blake3 import blake3

from genflow.errors import GenflowError
from genflow.storage.arriving import CHUNK_BYTES
from genflow.storage.objects import PART_BYTES
from genflow.storage.store import BlobDamaged, BlobMissing, HashMismatch, Store
from tests.support.stores import CREDENTIALS, Bucket, Folder, Place, S3Server, content, s3_server, stream

MB = 1024 * 1024


@pytest.fixture(scope="module", params=["local", "moto", "nanio"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server | None]:
    """The server of this kind of store; None for the local disk."""
    with ExitStack() as stack:
        kind: str = request.param
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield None if kind == "local" else stack.enter_context(s3_server(kind, tmp_path_factory.mktemp("s3")))


@pytest.fixture
def place(server: S3Server | None, tmp_path: Path) -> Place:
    if server is None:
        return Folder(tmp_path / "store")
    return Bucket(server, f"genflow/{uuid.uuid4()}", tmp_path)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, PART_BYTES, 2 * PART_BYTES + 17])
async def test_what_is_put_is_read_back_under_both_hashes(store: Store, place: Place, size: int) -> None:
    data = os.urandom(size)
    blob = await store.put(stream(data[: size // 3], b"", data[size // 3 :]))
    assert (blob.hash, blob.sha256, blob.size) == (blake3(data).digest(), hashlib.sha256(data).digest(), size)
    assert await content(store, blob.hash) == data
    assert await store.size(blob.hash) == size
    name = blob.hash.hex()
    assert place.names() == [f"blobs/{name[:2]}/{name[2:4]}/{name}"]


async def test_one_huge_chunk_is_read_back_in_bounded_ones(store: Store) -> None:
    blob = await store.put(stream(bytes(5 * MB)))
    sizes = [len(chunk) async for chunk in store.read(blob.hash)]
    assert sum(sizes) == 5 * MB
    assert max(sizes) <= CHUNK_BYTES


async def test_the_same_content_twice_is_one_blob(store: Store, place: Place) -> None:
    one = await store.put(stream(b"a portrait"))
    two = await store.put(stream(b"a ", b"portrait"))
    assert one == two
    assert len(place.names()) == 1


async def test_the_same_content_from_many_at_once_is_one_blob(place: Place) -> None:
    stores = [place.open() for _ in range(3)]
    data = os.urandom(MB)
    blobs = await asyncio.gather(*(stores[i % 3].put(stream(data[:9], data[9:])) for i in range(12)))
    assert set(blobs) == {blobs[0]}
    assert len(place.names()) == 1
    assert await content(stores[0], blobs[0].hash) == data


async def test_putting_again_heals_a_damaged_blob(store: Store, place: Place) -> None:
    blob = await store.put(stream(b"whole"))
    place.overwrite(place.names()[0], b"whol")
    await store.put(stream(b"whole"))
    assert await content(store, blob.hash) == b"whole"


@pytest.mark.parametrize(("start", "end"), [(0, 10), (5, 5), (1, None), (CHUNK_BYTES - 3, CHUNK_BYTES + 3), (0, 10**9)])
async def test_a_range_is_read_as_asked(store: Store, start: int, end: int | None) -> None:
    data = os.urandom(2 * CHUNK_BYTES + 5)
    blob = await store.put(stream(data))
    assert await content(store, blob.hash, start, end) == data[start:end]


async def test_a_range_past_the_end_is_empty(store: Store) -> None:
    blob = await store.put(stream(b"short"))
    assert await content(store, blob.hash, 100, 200) == b""


@pytest.mark.parametrize(("start", "end"), [(-1, None), (3, 2)])
async def test_an_impossible_range_is_refused(store: Store, start: int, end: int | None) -> None:
    blob = await store.put(stream(b"short"))
    with pytest.raises(ValueError, match="no range"):
        await content(store, blob.hash, start, end)


async def test_a_hash_of_the_wrong_length_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        await store.size(b"abc")


async def test_a_missing_blob_is_said_before_the_first_chunk(store: Store) -> None:
    with pytest.raises(BlobMissing):
        await content(store, bytes(32))
    assert await store.size(bytes(32)) is None
    await store.delete(bytes(32))


@pytest.mark.parametrize("damage", [b"flipped!", b"cut", b"", b"longer than before"])
async def test_a_damaged_blob_is_never_given_out_as_whole(store: Store, place: Place, damage: bytes) -> None:
    blob = await store.put(stream(b"original"))
    place.overwrite(place.names()[0], damage)
    with pytest.raises(BlobDamaged):
        await anext(store.read(blob.hash))


async def test_a_deleted_blob_is_gone(store: Store, place: Place) -> None:
    blob = await store.put(stream(b"no longer wanted"))
    await store.delete(blob.hash)
    await store.delete(blob.hash)
    assert await store.size(blob.hash) is None
    assert place.names() == []


async def test_the_old_ones_are_listed_by_their_hash(store: Store, place: Place) -> None:
    assert [hash async for hash in store.old(0.0)] == [], "a store that was never used"
    blobs = {(await store.put(stream(data))).hash for data in (b"one", b"two", b"three")}
    await store.name("a job", {"a.png": next(iter(blobs))})
    await store.marker()
    assert [hash async for hash in store.old(3600.0)] == [], "they are new"
    assert sorted([hash async for hash in store.old(-3600.0)]) == sorted(blobs)


async def test_too_much_is_refused_as_soon_as_it_came_and_leaves_nothing(store: Store, place: Place) -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield bytes(1_000)

    with pytest.raises(GenflowError) as refusal:
        await store.put(endless(), limit_bytes=10_000)
    assert (refusal.value.code, refusal.value.status) == ("payload_too_large", 413)
    assert refusal.value.details == {"limit": 10_000, "got": 11_000}
    assert asked == 11
    assert place.names() == []
    assert (await store.put(stream(bytes(10_000)), limit_bytes=10_000)).size == 10_000


@pytest.mark.parametrize("size", [100, PART_BYTES + 100])
async def test_bytes_of_another_hash_are_refused_and_leave_nothing(store: Store, place: Place, size: int) -> None:
    data = os.urandom(size)
    with pytest.raises(HashMismatch):
        await store.put(stream(data), expected=lambda: bytes(32))
    assert place.names() == []
    assert (await store.put(stream(data), expected=lambda: blake3(data).digest())).size == size


@pytest.mark.parametrize("size", [2 * MB, PART_BYTES + 2 * MB])
async def test_a_source_that_breaks_leaves_nothing_and_is_told_as_it_was(store: Store, place: Place, size: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(size)
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError):
        await store.put(broken())
    assert place.names() == []


async def test_forty_megabytes_pass_in_flat_memory(store: Store) -> None:
    piece = os.urandom(256 * 1024)

    async def photo() -> AsyncIterator[bytes]:
        for _ in range(160):
            yield bytes(piece)

    expected = blake3()
    for _ in range(160):
        expected.update(piece)
    tracemalloc.start()
    try:
        blob = await store.put(photo())
        async for _ in store.read(blob.hash):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (blob.size, blob.hash) == (40 * MB, expected.digest())
    assert peak < 12 * MB


async def test_the_marker_is_made_once_though_many_ask_at_once(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    markers = await asyncio.gather(*(store.marker() for store in stores for _ in range(2)))
    assert len(set(markers)) == 1
    assert str(uuid.UUID(markers[0])) == markers[0]
    assert await place.open().marker() == markers[0]
    assert place.names() == []


async def test_two_stores_have_two_markers(place: Place) -> None:
    assert await place.open().marker() != await place.elsewhere().marker()


async def test_names_for_people_never_harm_a_blob(store: Store) -> None:
    blob = await store.put(stream(b"a picture"))
    await store.name("job", {"3-solid_00001_.png": blob.hash})
    await store.unname("job")
    await store.unname("job")
    assert await content(store, blob.hash) == b"a picture"
