"""Files under concurrency: what two requests at the same time, a clean-up or a lost commit leave is what one would."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from genflow.errors import GenflowError
from genflow.queue.files import AssetInUse
from genflow.storage.store import StoredBlob
from tests.queue.conftest import Bench, waits_for_a_lock

BLOB = StoredBlob(b"b" * 32, b"s" * 32, 12)
PICTURE: dict[str, Any] = {"name": "a.png", "type": "image", "content_type": "image/png"}


async def test_a_submit_on_its_way_keeps_the_asset_that_it_names(bench: Bench) -> None:
    asset = await bench.queue.files.add(BLOB, **PICTURE)
    job = await bench.enqueue()
    async with bench.pool.connection() as submit, submit.transaction():
        await submit.execute("insert into genflow.job_assets (asset_id, job_id) values (%s, %s)", [asset, job])
        delete = asyncio.create_task(bench.queue.files.delete(asset))
        await waits_for_a_lock(bench, "-- Delete an asset")
    with pytest.raises(AssetInUse):
        await delete
    assert asset in await bench.queue.assets([asset])
    assert len(await bench.rows("select 1 from genflow.job_assets")) == 1


async def test_a_key_stays_free_where_clean_up_takes_the_bytes(bench: Bench) -> None:
    await bench.queue.files.add(BLOB, **PICTURE)
    await bench.rows("update genflow.blobs set state = 2 returning 1")
    with pytest.raises(GenflowError) as refused:
        await bench.queue.files.upload(BLOB, **PICTURE, key="k")
    assert refused.value.code == "storage_unavailable"
    assert await bench.queue.files.from_hash(BLOB.hash) is None
    assert not await bench.queue.files.has(BLOB.hash)
    await bench.rows("update genflow.blobs set state = 1 returning 1")
    await bench.queue.files.upload(BLOB, **PICTURE, key="k")


async def test_an_asset_without_an_end_gets_none(bench: Bench) -> None:
    asset = await bench.queue.files.add(BLOB, **PICTURE)
    await bench.rows("update genflow.assets set expires_at = null returning 1")
    found = await bench.queue.files.from_hash(BLOB.hash, name="a.png", keep_s=60)
    assert found is not None
    assert found.id == asset
    assert (await bench.queue.assets([asset]))[asset].expires_at is None


async def test_processes_that_start_together_have_one_secret(bench: Bench) -> None:
    async with bench.pool.connection() as first, first.transaction():
        await first.execute("insert into genflow.secrets (name, value) values ('links', 'first')")
        second = asyncio.create_task(bench.queue.files.secret("links"))
        await waits_for_a_lock(bench, "-- The secret")
    assert await second == b"first"
    assert await bench.queue.files.secret("links") == b"first"


async def test_statements_sent_again_after_a_lost_commit_find_their_own(bench: Bench) -> None:
    of_upload = PICTURE | {
        "asset": uuid4(), "tenant": 1, "hash": BLOB.hash, "sha256": BLOB.sha256, "size": BLOB.size, "tags": [],
        "keep_s": 60.0, "key": "k", "began": None, "key_ttl": 60.0,
    }  # fmt: skip
    for _ in range(2):
        assert await bench.writer.write("create_upload", of_upload) == [{"id": of_upload["asset"], "known": False}]
    minted = {"asset": uuid4(), "tenant": 1, "hash": BLOB.hash, "name": "b.png", "tags": [], "keep_s": 60.0}
    for _ in range(2):
        assert await bench.writer.write("asset_from_hash", minted) == [{"id": minted["asset"], "created": True}]
    assert len(await bench.rows("select 1 from genflow.assets")) == 2
