"""A worker that leaves gives back what it could not finish: nobody waits for its leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from aiohttp import web
from aiohttp.test_utils import TestServer

from genflow.app import run_worker
from genflow.comfy import open_session
from genflow.failures import Policy
from genflow.fleet import Fleet
from genflow.jobs import State
from genflow.protocol import Timing
from genflow.queue import Abilities, Ledger, Registry
from genflow.queue.records import NewJob
from genflow.settings import ServerSettings, Settings
from genflow.storage.local import LocalStore
from genflow.worker import Worker
from genflow.worker.live import LiveProgress
from genflow.worker.tools import Tools
from tests.queue.conftest import Bench
from tests.support.relay import relayed

WORKFLOW = '{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}'
LEASE_S = 0.6


class SlowUploads:
    """A server that answers every question and never ends an upload."""

    def __init__(self) -> None:
        self.uploading = asyncio.Event()
        self._marker = str(uuid4())
        self.app = web.Application()
        self.app.add_routes([web.get("/{path:.*}", self._answer), web.post("/upload/image", self._upload)])

    async def _answer(self, request: web.Request) -> web.Response:
        match request.path:
            case "/prompt":
                return web.json_response({"exec_info": {"queue_remaining": 0}})
            case "/view":
                return web.Response(text=self._marker)
            case "/object_info":
                return web.json_response({})
            case _:
                return web.json_response({"error": "Job not found"}, status=404)

    async def _upload(self, _: web.Request) -> web.Response:
        self.uploading.set()
        await asyncio.Event().wait()
        raise AssertionError("nothing sets that event")


async def _photo() -> AsyncIterator[bytes]:
    yield b"a photo"


async def test_what_a_leaving_worker_cuts_off_is_handed_over(bench: Bench, tmp_path: Path, database: str) -> None:
    store = LocalStore(tmp_path)
    blob = await store.put(_photo())
    asset = await bench.queue.files.add(blob, name="a.png", type="image", content_type="image/png")
    job = NewJob(id=uuid4(), workflow=WORKFLOW, body_hash=b"", policy=Policy(), assets=(asset,))
    await bench.queue.enqueue(job)
    worker_id, timing = uuid4(), Timing.from_lease(LEASE_S)
    registry = Registry(bench.writer, worker_id)
    await registry.register_worker(name="w", host="h", version="0")
    ledger = Ledger(bench.writer, worker_id, timing, retention_s=3600.0)
    slow = SlowUploads()
    async with TestServer(slow.app) as server, open_session() as session:
        fleet = Fleet(
            registry,
            session,
            gpus={"gpu0": ServerSettings(url=str(server.make_url("/")))},
            instance="here",
            slots=2,
            probe_s=5.0,
            quarantine_s=60.0,
            alive_s=60.0,
        )
        await fleet.start()
        tools = Tools(
            ledger=ledger,
            fleet=fleet,
            store=store,
            store_marker=await store.marker(),
            live=LiveProgress(ledger),
            timing=timing,
            poll_s=1.0,
            stop_grace_s=1.0,
            collect_window_s=60.0,
        )
        worker = Worker(tools, ledger, Abilities(bench.writer), conninfo=database, max_in_flight=None, claim_poll_s=0.1)
        await worker.start()
        await asyncio.wait_for(slow.uploading.wait(), 10)
        await worker.stop(grace_s=0.0, how="leave")
        await fleet.stop()
    row = await bench.row(job.id)
    assert (row["state"], row["worker_id"], row["server_id"]) == (State.QUEUED, None, None)
    assert (row["moved"], row["takeovers"]) == (1, 0), "a hand-over is no death"


async def test_a_worker_leaves_though_the_database_is_away(database: str, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, lease=LEASE_S, grace_s=0.0, health_port=0)
    async with relayed(database) as (conninfo, relay), asyncio.timeout(60), run_worker(settings, conninfo):
        relay.cut()
