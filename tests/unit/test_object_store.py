"""What a store in a bucket promises beside the contract: nothing half, no secret shown, signed addresses."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from genflow.errors import GenflowError
from genflow.storage import objects, opening
from genflow.storage.media import KNOWN, media_type
from genflow.storage.objects import PART_BYTES
from genflow.storage.store import Store
from tests.support.service import until
from tests.support.stores import CREDENTIALS, Bucket, S3Server, content, s3_server, stream

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(opening, "RETRIES", 0)


@pytest.fixture(scope="module")
def nanio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server("nanio", tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(nanio: S3Server, tmp_path: Path) -> Bucket:
    return Bucket(nanio, str(uuid.uuid4()), tmp_path)


@pytest.fixture
def store(bucket: Bucket) -> Store:
    return bucket.open()


async def test_a_canceled_upload_is_given_up_at_the_store_too(
    store: Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    real_read = objects._Arrived.read

    def slow_read(arrived: Any, start: int, length: int) -> bytes:
        if start >= 2 * PART_BYTES:
            reading.set()
            assert go_on.wait(30)
        return real_read(arrived, start, length)

    monkeypatch.setattr(objects._Arrived, "read", slow_read)
    putting = asyncio.ensure_future(store.put(stream(bytes(3 * PART_BYTES))))
    await asyncio.to_thread(reading.wait, 30)
    assert len(bucket.server.open_uploads(bucket.prefix)) == 1
    putting.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert bucket.names() == []


async def test_a_blob_on_its_way_is_in_no_file_that_a_crash_could_leave(store: Store, bucket: Bucket) -> None:
    async def watched() -> AsyncIterator[bytes]:
        yield bytes(PART_BYTES + 3_000_000)
        assert bucket.names() == []
        yield b"the end"

    await store.put(watched())
    assert len(bucket.names()) == 1


async def test_a_full_disk_here_is_said_and_leaves_nothing(
    store: Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(objects._Arrived, "write", full)
    with pytest.raises(GenflowError, match="No space left") as refusal:
        await store.put(stream(b"a picture"))
    assert (refusal.value.code, refusal.value.status) == ("storage_unavailable", 503)
    assert bucket.names() == []


@pytest.mark.parametrize("trouble", ["away", "no bucket", "wrong secret"])
async def test_a_store_that_fails_is_said_and_shows_nothing(
    nanio: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Never a lost blob, no secret in the log, no address for a client."""
    settings = nanio.settings("p", tmp_path)
    if trouble == "away":
        settings = settings.model_copy(update={"store_endpoint": "http://127.0.0.1:1"})
    if trouble == "no bucket":
        settings = settings.model_copy(update={"store": "s3://nothing-here/p"})
    if trouble == "wrong secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-" + SECRET)
    store = opening.open_store(settings)
    calls = [
        store.put(stream(PNG)),
        store.put(stream(bytes(PART_BYTES + 1))),
        content(store, bytes(32)),
        store.marker(),
    ]
    with capture_logs() as logged:
        for call in calls:
            with pytest.raises(GenflowError) as refusal:
                await call
            assert (refusal.value.code, refusal.value.status) == ("storage_unavailable", 503)
            assert "127.0.0.1" not in refusal.value.message
            assert "nothing-here" not in refusal.value.message
            assert refusal.value.__cause__ is None
    assert len(logged) >= len(calls)
    assert all(line["next"] and line["store"] == opening.place_of(settings) for line in logged)
    assert SECRET not in str(logged)
    assert CREDENTIALS["AWS_ACCESS_KEY_ID"] not in str(logged)


def test_a_signature_in_an_address_is_not_logged() -> None:
    error = OSError(
        "performing GET http://store/x?sv=1&sig=abc%2B - status 403\n\nDebug source: uri: http://store/x?sig=1"
    )
    assert objects._reason(error) == "performing GET http://store/x?… - status 403"


async def test_a_signed_address_gives_the_bytes_for_a_while(store: Store) -> None:
    blob = await store.put(stream(PNG))
    url = await store.signed_url(blob.hash, 60)
    brief = await store.signed_url(blob.hash, 1)
    assert url is not None
    assert brief is not None
    assert SECRET not in url
    async with aiohttp.ClientSession() as http:

        async def got(url: str, **headers: str) -> tuple[int, bytes, str | None]:
            async with http.get(url, headers=headers) as reply:
                return reply.status, await reply.read(), reply.headers.get("Content-Type")

        assert await got(url) == (200, PNG, "image/png")
        assert await got(url, Range="bytes=1-3") == (206, b"PNG", "image/png")
        assert (await got(url[:-1] + ("0" if url[-1] != "0" else "1")))[0] == 403

        async def refused() -> bool:
            return (await got(brief))[0] == 403

        await until(refused, "the brief address is over")


async def test_what_is_no_picture_is_saved_and_never_shown(bucket: Bucket) -> None:
    for data in (PNG, b"<html><script>alert(1)</script>"):
        await bucket.open().put(stream(data))
    client = bucket.server.client()
    heads = [client.head_object(Bucket="pictures", Key=f"{bucket.prefix}/{name}") for name in bucket.names()]
    assert {head["ContentType"] for head in heads} == {"image/png", "application/octet-stream"}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "application/octet-stream"),
        (b"\x00\x00\x00\x18ftypisom", "video/mp4"),
        (b"\x00\x00\x00\x18ftypavif", "image/avif"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x88matroska", "video/x-matroska"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm", "video/webm"),
        (b"<svg xmlns=", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_bytes_tell_their_type(head: bytes, kind: str) -> None:
    assert media_type(head) == kind
    assert kind in KNOWN


async def test_a_hundred_megabytes_go_up_and_down_in_flat_memory(bucket: Bucket) -> None:
    """In a process of its own, as its resident memory counts the client library's too."""
    program = """
import asyncio, resource, sys
from pathlib import Path
from tests.support.stores import S3Server, stream
store = S3Server("nanio", Path(sys.argv[1]), int(sys.argv[2])).store(sys.argv[3], Path(sys.argv[4]))
piece = bytes(range(256)) * 4096
async def main():
    async def chunks():
        for _ in range(120):
            yield piece
    async def both(chunks):
        blob = await store.put(chunks)
        async for _ in store.read(blob.hash):
            pass
    await both(stream(piece * 6))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await both(chunks())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""
    server = bucket.server
    words = [str(server.folder), str(server.port), bucket.prefix, str(bucket.data)]
    command = [sys.executable, "-c", program, *words]
    answer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) < 48 * 1024


async def test_who_saw_no_marker_late_takes_the_one_that_is_there(
    store: Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This server lets the last writer win: a process that comes back from a long pause must not be one."""
    late = bucket.open()
    looked, go_on = asyncio.Event(), asyncio.Event()
    make = objects.ObjectStore._make_marker

    async def make_late(self: objects.ObjectStore) -> None:
        if self is late:
            looked.set()
            await go_on.wait()
        await make(self)

    monkeypatch.setattr(objects.ObjectStore, "_make_marker", make_late)
    paused = asyncio.ensure_future(late.marker())
    await looked.wait()
    first = await store.marker()
    go_on.set()
    assert await paused == first == await bucket.open().marker()
