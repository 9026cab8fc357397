"""Pictures in a bucket are had through the API's own address, which sends on to one that the store has signed."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest

from genflow.app import claim_store
from genflow.cli.client import connect
from genflow.errors import GenflowError
from genflow.settings import Settings
from genflow.simulator import SimulatorOptions, running
from genflow.storage.opening import open_store
from tests.queue.conftest import Bench
from tests.support.api import Client, serving
from tests.support.cli import Terminal
from tests.support.stores import CREDENTIALS, S3Server, away, back, s3_server, stream

PNG = b"\x89PNG\r\n\x1a\n" + os.urandom(1_000)


@pytest.fixture(scope="module")
def nanio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server("nanio", tmp_path_factory.mktemp("s3")) as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def in_bucket(nanio: S3Server, tmp_path: Path) -> Settings:
    return nanio.settings("content", tmp_path)


@pytest.fixture
async def api(bench: Bench, in_bucket: Settings) -> AsyncIterator[Client]:
    async with serving(bench.queue, open_store(in_bucket), in_bucket, bench.pool) as client:
        yield client


async def kept(bench: Bench, settings: Settings, data: bytes, content_type: str = "image/png") -> UUID:
    """An asset of these bytes; its id."""
    blob = await open_store(settings).put(stream(data))
    return await bench.queue.files.add(blob, name="a.png", type="image", content_type=content_type)


async def test_the_bytes_come_from_the_store_whole_or_in_ranges(api: Client, bench: Bench, in_bucket: Settings) -> None:
    asset = await kept(bench, in_bucket, PNG)
    path = f"/api/v2/assets/{asset}/content"
    told = await api.get(path, allow_redirects=False)
    assert (told.status, told.body) == (302, b"")
    assert told.headers["Location"].startswith(f"{in_bucket.store_endpoint}/pictures/content/blobs/")
    assert "X-Amz-Expires=900" in told.headers["Location"]
    assert told.headers["Cache-Control"] == "no-store"
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in told.headers["Location"]
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer of-the-api-alone"}) as http:
        async with http.get(api.url + path) as reply:
            assert (reply.status, await reply.read(), reply.content_type) == (200, PNG, "image/png")
        async with http.get(api.url + path, headers={"Range": "bytes=1-3"}) as reply:
            assert (reply.status, await reply.read()) == (206, b"PNG")
    head = await api.ask("HEAD", path)
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(PNG))), "a HEAD is answered, not sent on"
    assert (await api.get(path, headers={"Range": "bytes=99999-"})).code == "range_not_satisfiable"


async def test_the_address_of_an_asset_is_ours_and_outlives_a_signature(
    api: Client, bench: Bench, in_bucket: Settings
) -> None:
    asset = await kept(bench, in_bucket, PNG)
    shown = (await api.get(f"/api/v2/assets/{asset}")).json
    assert shown["url"].startswith(f"{api.url}/api/v2/assets/{asset}/content")


async def test_a_text_keeps_its_type_and_comes_from_us(api: Client, bench: Bench, in_bucket: Settings) -> None:
    asset = await kept(bench, in_bucket, "grüße".encode(), "text/plain; charset=utf-8")
    answer = await api.get(f"/api/v2/assets/{asset}/content", allow_redirects=False)
    assert (answer.status, answer.body.decode()) == (200, "grüße")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_without_redirects_we_serve_the_bytes(bench: Bench, in_bucket: Settings) -> None:
    asset = await kept(bench, in_bucket, PNG)
    ours = in_bucket.model_copy(update={"redirect": False})
    async with serving(bench.queue, open_store(ours), ours, bench.pool) as client:
        answer = await client.get(
            f"/api/v2/assets/{asset}/content", allow_redirects=False, headers={"Range": "bytes=1-3"}
        )
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (206, b"PNG", "image/png")


async def test_our_own_commands_follow_to_the_store(api: Client, bench: Bench, in_bucket: Settings) -> None:
    asset = await kept(bench, in_bucket, PNG)
    into = io.BytesIO()
    async with connect(api.url) as client:
        await client.download(f"/api/v2/assets/{asset}/content", into)
    assert into.getvalue() == PNG


async def test_a_store_that_is_away_makes_the_api_unready_and_no_longer(api: Client, nanio: S3Server) -> None:
    assert (await api.get("/readyz")).status == 200
    await away(nanio)
    try:
        answer = await api.get("/readyz")
        assert (answer.status, answer.code) == (503, "not_ready")
        assert answer.details["checks"]["storage"] != "ok"
        assert "127.0.0.1" not in str(answer.details["checks"]["storage"])
    finally:
        await back(nanio)
    assert (await api.get("/readyz")).status == 200


async def test_check_says_whether_the_bucket_answers(nanio: S3Server, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "http://127.0.0.1:9")
    async with running(SimulatorOptions()) as [server]:
        words = ("check", f"--gpu=gpu0={server.url}", f"--store-endpoint={nanio.url}")
        good = await terminal.run(*words, "--store=s3://pictures/check")
        bad = await terminal.run(*words, "--store=s3://nothing-here", "--json")
    assert f"store: s3://pictures/check at {nanio.url} answers" in good.out.splitlines()
    assert (good.status, bad.status) == (0, 1)
    assert bad.json["store"]["trouble"] == "the store can't show its marker: it answers 404 Not Found"


async def test_two_stores_on_one_database_are_refused_naming_both(
    bench: Bench, in_bucket: Settings, nanio: S3Server, tmp_path: Path
) -> None:
    await claim_store(in_bucket, bench.pool)
    await claim_store(in_bucket, bench.pool)
    elsewhere = nanio.settings("another", tmp_path)
    for other, place in ((elsewhere, "s3://pictures/another at "), (Settings(data=tmp_path), f"{tmp_path} on ")):
        with pytest.raises(GenflowError) as refusal:
            await claim_store(other, bench.pool)
        assert (refusal.value.code, refusal.value.status) == ("store_mismatch", 409)
        assert place in refusal.value.message
        assert f"s3://pictures/content at {nanio.url}" in refusal.value.message
