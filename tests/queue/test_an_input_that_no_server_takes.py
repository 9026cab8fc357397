"""A photo that the server, or a proxy in front of it, finds too large ends its job instead of going round for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from aiohttp import web
from aiohttp.test_utils import TestServer

from genflow.comfy import open_session
from genflow.failures import Policy
from genflow.fleet import Fleet
from genflow.jobs import State
from genflow.queue import Registry
from genflow.queue.records import NewJob
from genflow.queue.writer import Row
from genflow.settings import ServerSettings
from genflow.storage.local import LocalStore
from genflow.worker.attempt import Attempt
from genflow.worker.live import LiveProgress
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools
from tests.queue.conftest import TIMING, Bench

WORKFLOW = '{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}'


async def too_large(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=413, text="413 Request Entity Too Large")


async def photo() -> AsyncIterator[bytes]:
    yield b"a photo"


async def taken(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({"name": "a.png", "subfolder": "", "type": "input"})


async def work_on_a_photo(
    bench: Bench,
    folder: Path,
    answer: Callable[[web.Request], Awaitable[web.Response]],
    *,
    lose_it: bool,
    other_store: bool = False,
) -> Row:
    """One attempt at a job with a photo, on a server that answers uploads like this; the job's row after it."""
    app = web.Application()
    app.router.add_post("/upload/image", answer)
    store = LocalStore(folder)
    blob = await store.put(photo())
    asset = await bench.queue.files.add(blob, name="a.png", type="image", content_type="image/png")
    job = NewJob(id=uuid4(), workflow=WORKFLOW, body_hash=b"", policy=Policy(), assets=(asset,))
    await bench.queue.enqueue(job)
    if lose_it:
        await store.delete(blob.hash)
    ledger = await bench.worker("w1")
    async with TestServer(app) as proxy, open_session() as session:
        fleet = Fleet(
            Registry(bench.writer, bench.worker_ids["w1"]),
            session,
            gpus={"gpu0": ServerSettings(url=str(proxy.make_url("/")))},
            instance="here",
            slots=2,
            probe_s=1.0,
            quarantine_s=60.0,
            alive_s=60.0,
        )
        await fleet.start()
        [server] = fleet.servers
        [(claim, hold)] = await ledger.claim_unbound(server.id, slots=2, limit=1)
        tools = Tools(
            ledger=ledger,
            fleet=fleet,
            store=store,
            store_marker="another store" if other_store else await store.marker(),
            live=LiveProgress(ledger),
            timing=TIMING,
            poll_s=1.0,
            stop_grace_s=1.0,
            collect_window_s=60.0,
        )
        await Attempt(tools, JobRun(hold), claim, server).carry_on()
        await fleet.stop()
    return await bench.row(job.id)


async def test_an_upload_refused_for_its_size_is_a_dead_letter(bench: Bench, tmp_path: Path) -> None:
    row = await work_on_a_photo(bench, tmp_path, too_large, lose_it=False)
    assert (row["state"], row["attempt"]) == (State.FAILED, 0)
    assert row["error"]["code"] == "input_too_large"
    assert "413" in row["error"]["message"]


async def test_a_photo_that_the_store_lost_is_a_dead_letter(bench: Bench, tmp_path: Path) -> None:
    row = await work_on_a_photo(bench, tmp_path, taken, lose_it=True)
    assert (row["state"], row["error"]["code"]) == (State.FAILED, "input_unavailable")


async def test_a_store_that_is_not_mounted_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    async def unmounted(request: web.Request) -> web.Response:
        raise AssertionError("nothing is there to send")

    mounted = tmp_path / "store"
    row = await work_on_a_photo(bench, mounted, unmounted, lose_it=True, other_store=True)
    assert (row["state"], row["error"]) == (State.WAITING, None)
