"""Retention and erasure on a real database and a real store: rows, bytes and names, whatever crashes on the way."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow import failpoints
from genflow.errors import GenflowError
from genflow.failures import Policy
from genflow.jobs import Status
from genflow.protocol import HistoryEntry
from genflow.queue import Hold
from genflow.queue.erasure import Erasure, Prune
from genflow.queue.records import NewJob, StoredOutput
from genflow.queue.statements import statement
from genflow.storage.local import LocalStore
from genflow.storage.store import StoredBlob
from genflow.upkeep.retention import ORPHAN_AGE_S, Retention
from tests.queue.conftest import Bench, waits_for_a_lock

DAY_S = 86_400.0
ENTRY = HistoryEntry(
    "success",
    None,
    {"3": {"images": [{"filename": "a_1.png", "subfolder": "genflow/x/1", "type": "output"}], "text": ["a secret"]}},
    None, 1_000, 3_500, {},
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.fixture
def erasure(bench: Bench) -> Erasure:
    return Erasure(bench.writer)


@pytest.fixture
def retention(erasure: Erasure, store: LocalStore) -> Retention:
    return Retention(erasure, store, grace_s=DAY_S)


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.arm("")


async def put(store: LocalStore, content: bytes) -> StoredBlob:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return await store.put(chunks())


async def upload(bench: Bench, store: LocalStore, content: bytes = b"a face") -> tuple[UUID, StoredBlob]:
    """Bytes that came in and were recorded: their asset."""
    began = await bench.queue.files.clock()
    blob = await put(store, content)
    asset = await bench.queue.files.add(blob, name="a.png", type="image", content_type="image/png", began=began)
    return asset, blob


def stored(blob: StoredBlob, index: int = 0) -> StoredOutput:
    return StoredOutput(uuid4(), blob.hash, blob.sha256, blob.size, "3", "images", index, "a.png", "image", "image/png")


async def job_of(bench: Bench, *assets: UUID, policy: Policy | None = None) -> UUID:
    job = NewJob(
        id=uuid4(), workflow='{"1": "a secret"}', body_hash=b"body", policy=policy or Policy(), assets=assets,
        idempotency_key=str(uuid4()),
    )  # fmt: skip
    await bench.queue.enqueue(job)
    return job.id


async def submitted(bench: Bench, server: int) -> Hold:
    """The next job, its input on the server, its run ended."""
    [hold] = await bench.claim("w", server)
    ledger = await bench.worker("w")
    face = (f"genflow/{hold.job_id}/face.png", b"face")
    await ledger.upload_done(hold, server_id=server, boot=None, files=[face])
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.run_ended(hold, intent.no, ENTRY)
    return hold


async def later(bench: Bench, seconds: float) -> None:
    """Everything is so much older."""
    for table, columns in {
        "jobs": ("created_at", "ended_at", "expires_at"),
        "assets": ("created_at", "expires_at"),
        "blobs": ("touched_at",),
        "batches": ("expires_at",),
        "job_keys": ("expires_at",),
        "late_receipts": ("seen_at",),
        "job_live": ("watched_until",),
        "object_info": ("seen_at",),
    }.items():
        sets = ", ".join(f"{each} = {each} - {seconds} * interval '1 s'" for each in columns)
        await bench.rows(f"update genflow.{table} set {sets} returning 1")  # noqa: S608


async def count(bench: Bench, table: str) -> int:
    return int((await bench.rows(f"select count(*) as n from genflow.{table}"))[0]["n"])  # noqa: S608


async def there(store: LocalStore, *blobs: StoredBlob) -> list[bool]:
    return [await store.size(blob.hash) is not None for blob in blobs]


async def test_a_job_past_its_time_goes_with_its_bytes_and_a_live_one_does_not(
    bench: Bench, store: LocalStore, retention: Retention, tmp_path: Path
) -> None:
    server = await bench.server()
    photo, face = await upload(bench, store)
    live = await job_of(bench, photo)
    await bench.rows("update genflow.jobs set state = 1, run_at = 'infinity' returning 1")
    done = await job_of(bench, photo)
    hold = await submitted(bench, server)
    picture = await put(store, b"a picture")
    await store.name(str(done), {"a.png": picture.hash})
    await (await bench.worker("w")).finish(hold, [stored(picture)])
    await later(bench, 3590)
    await retention.round()
    assert await bench.queue.view(done) is not None, "its time begins with its end"
    await later(bench, 100)
    assert await bench.queue.view(done) is None
    await retention.round()
    assert {row["id"] for row in await bench.rows("select id from genflow.jobs")} == {live}
    assert await bench.rows("select id from genflow.assets") == [{"id": photo}], "a live job needs it"
    assert not list((tmp_path / "jobs").iterdir()), "names go first"
    view = await bench.queue.view(live)
    assert view is not None
    assert view.status is Status.QUEUED
    [now] = await bench.rows("select genflow.clock() as now")
    assert (view.expires_at - now["now"]).total_seconds() == pytest.approx(3600, abs=5), "its time moves on"
    assert await there(store, face, picture) == [True, True], "for a day"
    await later(bench, DAY_S)
    await retention.round()
    assert await there(store, face, picture) == [True, False]
    await bench.rows("update genflow.jobs set state = 2 returning 1")
    await bench.queue.cancel(live)
    await later(bench, 2 * DAY_S)
    await retention.round()
    assert (await count(bench, "jobs"), await count(bench, "assets")) == (0, 0)
    await later(bench, DAY_S)
    await retention.round()
    await later(bench, DAY_S)
    await retention.round()
    assert await there(store, face) == [False]
    assert await count(bench, "blobs") == 0, "their rows go an hour later"


@pytest.mark.parametrize("scrub", [True, False])
async def test_the_scrub_outlives_its_job_with_all_that_it_needs(
    bench: Bench, retention: Retention, erasure: Erasure, scrub: bool
) -> None:
    server = await bench.server()
    job = await job_of(bench, policy=Policy(scrub=scrub))
    hold = await submitted(bench, server)
    await (await bench.worker("w")).finish(hold, [])
    assert await count(bench, "chores") == (2 if scrub else 0)
    assert await bench.queue.erase(job)
    assert not await bench.queue.erase(job, tenant=2)
    await retention.let_go([job])
    assert await bench.queue.view(job) is None
    left = await erasure.left(job)
    assert (left.job, left.servers) == (False, [{"server": "gpu0", "copies": 2}])
    [listed] = await bench.queue.servers.listed()
    assert listed["erasures_left"] == 2
    names = [f"genflow/{job}/face.png"]
    while (chore := await bench.sweeps.claim_scrub(server, lease_s=60)) is not None:
        if chore.submit is None:
            assert await bench.sweeps.unused_inputs(server, job) == names
            await bench.sweeps.inputs_emptied(server, job, names)
        else:
            assert chore.payload["outputs"] == {
                "0": {"files": [{"filename": "a_1.png", "subfolder": "genflow/x/1", "type": "output"}]}
            }, "its files' names, and no text of anybody"
        await bench.sweeps.end_chore(chore)
    tables = ("jobs", "job_specs", "submits", "attempts", "chores", "server_files", "server_file_refs")
    assert [await count(bench, table) for table in tables] == [0] * len(tables)
    assert await count(bench, "job_keys") == 1, "its key still runs nothing"


async def test_an_erasure_takes_what_is_its_own_at_once_and_leaves_what_others_use(
    bench: Bench, store: LocalStore, retention: Retention
) -> None:
    server = await bench.server()
    shared, shared_blob = await upload(bench, store, b"shared")
    own, own_blob = await upload(bench, store, b"own")
    twin, twin_blob = await upload(bench, store, b"the same bytes as the picture")
    job = await job_of(bench, shared, own)
    hold = await submitted(bench, server)
    picture = await put(store, b"a picture")
    await (await bench.worker("w")).finish(hold, [stored(picture), stored(twin_blob, 1)])
    other = await job_of(bench, shared)
    assert await bench.queue.erase(job)
    assert await retention.let_go([job]) == [job]
    assert await retention.hurried_blobs()
    assert await there(store, picture, own_blob) == [False, False]
    assert await there(store, shared_blob, twin_blob) == [True, True]
    assert {row["id"] for row in await bench.rows("select id from genflow.assets")} == {shared, twin}
    assert await bench.queue.erase(other)
    await retention.round()
    assert {row["id"] for row in await bench.rows("select id from genflow.assets")} == {twin}, (
        "what waits is canceled, and then gone"
    )


async def test_a_job_that_runs_is_erased_once_it_has_stopped(bench: Bench, retention: Retention) -> None:
    server = await bench.server()
    job = await job_of(bench)
    hold = await submitted(bench, server)
    await bench.rows("update genflow.jobs set step = 2 returning 1")
    assert await bench.queue.erase(job)
    await retention.round()
    view = await bench.queue.view(job)
    assert view is not None
    assert view.status is Status.CANCELING
    await (await bench.worker("w")).finish(hold, [])
    await retention.round()
    assert await bench.queue.view(job) is None


async def test_bytes_that_are_put_again_are_never_lost(
    bench: Bench, store: LocalStore, erasure: Erasure, retention: Retention
) -> None:
    async def loose() -> StoredBlob:
        asset, blob = await upload(bench, store, b"again and again")
        await bench.queue.files.delete(asset)
        await later(bench, DAY_S + 1)
        return blob

    async def record(blob: StoredBlob, began: Any) -> UUID:
        return await bench.queue.files.add(blob, name="b.png", type="image", content_type="image/png", began=began)

    # Recorded before the take: it waits for nobody and takes nothing.
    blob = await loose()
    async with bench.pool.connection() as connection, connection.transaction():
        await connection.execute("update genflow.blobs set touched_at = genflow.clock()")
        assert (await erasure.take_blobs(grace_s=DAY_S)).hashes == [], "somebody is at its row"
    assert (await erasure.take_blobs(grace_s=DAY_S)).hashes == []
    # Put before the take, recorded after it, and after its bytes went: refused.
    await later(bench, DAY_S + 1)
    began = await bench.queue.files.clock()
    await put(store, b"again and again")
    taken = await erasure.take_blobs(grace_s=DAY_S)
    assert taken.hashes == [blob.hash]
    with pytest.raises(GenflowError, match="being cleaned up"):
        await record(blob, began)
    await store.delete(blob.hash)
    await erasure.gone(taken)
    with pytest.raises(GenflowError, match="being cleaned up"):
        await record(blob, began)
    with pytest.raises(GenflowError, match="being cleaned up"):
        await record(blob, None)
    # Put after its bytes went: there.
    await upload(bench, store, b"again and again")
    assert await there(store, blob) == [True]
    assert [row["state"] for row in await bench.rows("select state from genflow.blobs")] == [1]
    await retention.round()
    # A sweeper that comes too late has nothing to say any more.
    await erasure.gone(taken)
    assert [row["state"] for row in await bench.rows("select state from genflow.blobs")] == [1]


async def test_a_put_that_waits_for_the_take_is_refused(bench: Bench, store: LocalStore) -> None:
    asset, blob = await upload(bench, store)
    await bench.queue.files.delete(asset)
    await later(bench, DAY_S + 1)
    began = await bench.queue.files.clock()
    async with bench.pool.connection() as connection, connection.transaction():
        params = {"grace_s": DAY_S, "lease_s": 120.0, "limit": 10}
        await connection.execute(statement("take_blobs"), params)
        again = asyncio.create_task(
            bench.queue.files.add(blob, name="b.png", type="image", content_type="image/png", began=began)
        )
        await waits_for_a_lock(bench, "-- Record a file")
    with pytest.raises(GenflowError, match="being cleaned up"):
        await again


@pytest.mark.parametrize("place", ["erase.before_delete", "blobs.after_take", "blobs.after_delete"])
async def test_a_crash_on_the_way_is_made_good_by_the_next_round(
    bench: Bench, store: LocalStore, retention: Retention, place: str
) -> None:
    server = await bench.server()
    job = await job_of(bench)
    hold = await submitted(bench, server)
    picture = await put(store, b"a picture")
    await (await bench.worker("w")).finish(hold, [stored(picture)])
    await bench.queue.erase(job)
    failpoints.arm(f"{place}=error")
    with pytest.raises(failpoints.FailpointError):
        await retention.round()
    await retention.round()
    assert await count(bench, "jobs") == 0
    await bench.rows("update genflow.blobs set touched_at = touched_at - interval '3 min' returning 1")
    await retention.round()
    assert await there(store, picture) == [False]
    await later(bench, 3601)
    await retention.round()
    assert await count(bench, "blobs") == 0


async def test_two_sweepers_share_the_work(bench: Bench, store: LocalStore, erasure: Erasure) -> None:
    jobs = [await job_of(bench) for _ in range(12)]
    for job in jobs:
        await bench.queue.erase(job)
    first, second = await asyncio.gather(erasure.let_go(jobs), erasure.let_go(list(reversed(jobs))))
    assert sorted(first + second) == sorted(jobs)
    busy, idle = await job_of(bench), await job_of(bench)
    for job in (busy, idle):
        await bench.queue.erase(job)
    async with bench.pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from genflow.jobs where id = %s for update", [busy])
        async with asyncio.timeout(10):
            assert await erasure.let_go([busy, idle]) == [idle], "nobody waits for another's row"
    for number in range(12):
        asset, _ = await upload(bench, store, b"%d" % number)
        await bench.queue.files.delete(asset)
    await later(bench, DAY_S + 1)
    one, two = await asyncio.gather(erasure.take_blobs(grace_s=DAY_S), erasure.take_blobs(grace_s=DAY_S))
    assert len(set(one.hashes) | set(two.hashes)) == len(one.hashes) + len(two.hashes) == 12


async def test_bytes_without_a_row_are_found_after_a_day(
    bench: Bench, store: LocalStore, retention: Retention, tmp_path: Path
) -> None:
    _, known = await upload(bench, store, b"known")
    young, orphan = await put(store, b"young"), await put(store, b"orphan")
    for blob in (known, orphan):
        name = blob.hash.hex()
        os.utime(tmp_path / "blobs" / name[:2] / name[2:4] / name, (time.time() - ORPHAN_AGE_S - 5,) * 2)
    await retention.orphans()
    await retention.round()
    assert await there(store, known, young, orphan) == [True, True, False]


async def test_all_else_goes_by_its_time(bench: Bench, erasure: Erasure) -> None:
    job = await job_of(bench)
    await bench.queue.view(job, watched=True)
    batch = uuid4()
    params = {"batch": batch, "tenant": 1, "name": "b", "retention_s": 3600.0, "rows": [1], "jobs": [job],
              "sets": [json.dumps({})]}  # fmt: skip
    await bench.writer.write("create_batch", params)
    await bench.writer.write("save_object_info", {"hash": b"old", "body": "{}"})
    await bench.writer.write("late_receipt", {"submit": uuid4(), "number": 1.0})
    await bench.rows("insert into genflow.job_keys values (1, 'file', 'x', gen_random_uuid(), '') returning 1")
    await bench.rows("update genflow.jobs set batch_id = %s returning 1", batch)
    for what in Prune:
        assert await erasure.prune(what) == 0, what
    await later(bench, 31 * DAY_S)
    found = {what: await erasure.prune(what) for what in Prune}
    gone = {Prune.KEYS, Prune.RECEIPTS, Prune.LIVE, Prune.OBJECT_INFO}
    assert {what for what, rows in found.items() if rows} == gone, "a live job keeps its batch"
    await bench.queue.cancel(job)
    assert await erasure.prune(Prune.BATCHES) == 1
    assert (await count(bench, "batch_rows"), await count(bench, "job_keys")) == (0, 1), "an id of a file stays known"
