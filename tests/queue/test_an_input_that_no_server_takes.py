"""A photo that the server, or a proxy in front of it, finds too large ends its job instead of going round for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
from genflow.storage.local import LocalStore
from genflow.worker.attempt import Attempt
from genflow.worker.progress import LiveProgress
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools
from tests.queue.conftest import TIMING, Bench

WORKFLOW = '{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}'


async def too_large(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=413, text="413 Request Entity Too Large")


async def photo() -> AsyncIterator[bytes]:
    yield b"a photo"


async def test_an_upload_refused_for_its_size_is_a_dead_letter(bench: Bench, tmp_path: Path) -> None:
    app = web.Application()
    app.router.add_post("/upload/image", too_large)
    store = LocalStore(tmp_path)
    blob = await store.put(photo())
    asset = await bench.queue.add_upload(
        hash=blob.hash, sha256=blob.sha256, size=blob.size, name="a.png", type="image", content_type="image/png"
    )
    job = NewJob(id=uuid4(), workflow=WORKFLOW, body_hash=b"", policy=Policy(), assets=(asset,))
    await bench.queue.enqueue(job)
    ledger = await bench.worker("w1")
    async with TestServer(app) as proxy, open_session() as session:
        fleet = Fleet(
            Registry(bench.writer, bench.worker_ids["w1"]),
            session,
            gpus={"gpu0": str(proxy.make_url("/"))},
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
            live=LiveProgress(ledger),
            timing=TIMING,
            poll_s=1.0,
            stop_grace_s=1.0,
            collect_window_s=60.0,
        )
        await Attempt(tools, JobRun(hold), claim, server).carry_on()
        await fleet.stop()
    row = await bench.row(job.id)
    assert (row["state"], row["attempt"]) == (State.FAILED, 0)
    assert row["error"]["code"] == "input_too_large"
    assert "413" in row["error"]["message"]
