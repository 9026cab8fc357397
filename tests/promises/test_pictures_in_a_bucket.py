"""The same promises with the pictures in an S3 bucket: one run, nothing lost while the store is away."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.service import Service, until
from tests.support.stores import CREDENTIALS, S3Server, away, back, s3_server


def options(server: S3Server) -> dict[str, Any]:
    """Where API and worker keep their pictures."""
    return {"store": "s3://pictures/genflow", "store_endpoint": server.url}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


async def test_a_portrait_goes_through_a_bucket_and_is_had_from_it(genflow: Service, tmp_path: Path) -> None:
    """The photo lies in the bucket, goes to the server from there, and the picture comes from there to the client."""
    with s3_server("moto", tmp_path) as moto:
        await asyncio.gather(genflow.simulate(), genflow.api(**options(moto)))
        await genflow.worker(**options(moto))
        job = await genflow.submit_portrait()
        [output] = (await genflow.succeeded(job))["outputs"]
        async with genflow.http.get(output["url"]) as reply:
            data = await reply.read()
            assert (reply.status, reply.content_type) == (200, "image/png")
            assert [answer.status for answer in reply.history] == [302]
            assert reply.url.port == moto.port
        [(known,)] = await genflow.sql("select encode(sha256, 'hex') from genflow.blobs where size = %s", len(data))
        assert hashlib.sha256(data).hexdigest() == known
        async with genflow.http.get(output["url"], headers={"Range": "bytes=1-3"}) as reply:
            assert (reply.status, await reply.read()) == (206, b"PNG")
        kept = await asyncio.to_thread(moto.keys, "genflow")
        assert len(kept) == 3, "the marker, the photo and the picture"
        assert genflow.files("blobs") == genflow.files("arriving") == [], "nothing of it is on this machine's disk"
        for process in genflow.processes:
            assert not process.said(CREDENTIALS["AWS_SECRET_ACCESS_KEY"])


async def test_a_store_that_is_away_costs_no_result(genflow: Service, tmp_path: Path) -> None:
    """The run ended while the store was away: its download is tried again once it is back, nothing runs again."""
    with s3_server("nanio", tmp_path) as nanio:
        await asyncio.gather(genflow.simulate(), genflow.api(**options(nanio)))
        worker = await genflow.worker(**options(nanio))
        await away(nanio)
        job = await genflow.submit()
        await genflow.simulators[0].wait("ended", job)
        await until(lambda: worker.said("collect_failed"), "the download failed")
        assert (await genflow.job(job))["status"] == "running"
        await back(nanio)
        [output] = (await genflow.succeeded(job))["outputs"]
        async with aiohttp.ClientSession() as http, http.get(output["url"]) as reply:
            assert (reply.status, len(await reply.read())) == (200, output["size_bytes"])
        assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
        story = await genflow.story(job)
        assert (story["attempts_spent"], story["resubmits"]) == (1, 0)
