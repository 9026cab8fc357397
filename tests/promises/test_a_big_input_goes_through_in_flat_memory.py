"""A file of 90 MB goes up, down and to its server in pieces: no process of ours holds it whole."""

from __future__ import annotations

from collections.abc import AsyncIterator

import blake3

from genflow.postgres.pool import open_pool
from genflow.queue import Queue
from genflow.storage.local import LocalStore
from tests.support.big_files import down, up
from tests.support.portraits import face_photo
from tests.support.service import Service

SIZE = 90_000_000
PIECE = 1_000_000


async def picture() -> AsyncIterator[bytes]:
    """A photo that any decoder reads, with much behind its end."""
    photo = face_photo()
    yield photo
    left = SIZE - len(photo)
    while left:
        yield bytes(min(PIECE, left))
        left -= min(PIECE, left)


async def test_the_worker_never_holds_it_whole(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api()
    worker = await genflow.worker()
    blob = await LocalStore(genflow.folder).put(picture())
    async with await open_pool(genflow.database, 1, 1) as pool:
        asset = await Queue(pool, queue_limit=10, retention_s=3600.0).files.add(
            blob, name="big.jpg", type="image", content_type="image/jpeg"
        )
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": {"__type": "core/ASSET", "info": {"id": str(asset)}}}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "big"}},
    }
    before = worker.grown()
    job = await genflow.submit(graph)
    await genflow.succeeded(job)
    assert worker.grown() - before < SIZE / 3
    [there] = [path for path in genflow.folder.glob("sim0/**/*") if path.is_file() and path.stat().st_size == SIZE]
    assert blake3.blake3(there.read_bytes()).digest() == blob.hash, "every byte arrived"
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    assert (await sim.books())["uploads"] >= 1


async def test_the_api_never_holds_it_whole(genflow: Service) -> None:
    api = await genflow.api()
    before = api.grown()
    asset = await up(genflow, SIZE)
    assert await down(genflow, asset["url"]) == (SIZE, asset["hash"])
    assert api.grown() - before < SIZE / 3
