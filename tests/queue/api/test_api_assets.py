"""Assets over HTTP: the record, and the bytes whole or in ranges."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genflow.api.assets import byte_range
from genflow.errors import GenflowError
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.storage.store import StoredBlob
from tests.queue.api.test_api_jobs import finished
from tests.queue.conftest import Bench
from tests.support.api import Client, serving

ASSETS = "/api/v2/assets"


async def keep(
    bench: Bench, store: LocalStore, data: bytes, name: str = "a.png", content_type: str = "image/png"
) -> tuple[UUID, StoredBlob]:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    blob = await store.put(chunks())
    asset_id = await bench.queue.files.add(blob, name=name, type="image", content_type=content_type)
    return asset_id, blob


async def test_an_asset_has_every_key_of_the_contract(api: Client, bench: Bench, store: LocalStore) -> None:
    asset_id, blob = await keep(bench, store, b"bytes", "photo.png")
    answer = await api.get(f"{ASSETS}/{asset_id}")
    assert answer.status == 200
    asset = answer.json
    assert (asset["id"], asset["hash"]) == (str(asset_id), f"blake3:{blob.hash.hex()}")
    assert (asset["size_bytes"], asset["content_type"], asset["file_path"]) == (5, "image/png", "photo.png")
    assert asset["job_id"] is None
    for key in ("created_at", "url_expires_at", "expires_at"):
        assert datetime.fromisoformat(asset[key]).tzinfo is not None
    assert asset["url"].startswith(f"{api.url}{ASSETS}/{asset_id}/content?")
    assert (await api.get(asset["url"].removeprefix(api.url))).body == b"bytes"
    assert (await api.get(f"{ASSETS}/{asset_id}/content")).body == b"bytes"


async def test_an_output_is_an_asset_of_its_job(api: Client, bench: Bench) -> None:
    job, output_id = await finished(bench)
    asset = (await api.get(f"{ASSETS}/{output_id}")).json
    assert (asset["job_id"], asset["size_bytes"]) == (str(job), 12)


async def test_bytes_come_whole_or_in_ranges(api: Client, bench: Bench, store: LocalStore) -> None:
    data = random.Random(1).randbytes(3_000_000)
    asset_id, _ = await keep(bench, store, data)
    path = f"{ASSETS}/{asset_id}/content"
    whole = await api.get(path)
    assert (whole.status, whole.body) == (200, data)
    assert whole.headers["Accept-Ranges"] == "bytes"
    assert whole.headers["Content-Type"] == "image/png"
    assert whole.headers["Content-Length"] == "3000000"
    assert "ETag" not in whole.headers
    for header, start, end in [
        ("bytes=2-9", 2, 10), ("bytes=0-0", 0, 1), ("bytes=2999999-", 2_999_999, 3_000_000),
        ("bytes=-5", 2_999_995, 3_000_000), ("bytes=1000000-9999999", 1_000_000, 3_000_000),
    ]:  # fmt: skip
        part = await api.get(path, headers={"Range": header})
        assert (part.status, part.body) == (206, data[start:end]), header
        assert part.headers["Content-Range"] == f"bytes {start}-{end - 1}/3000000"
        assert part.headers["Content-Length"] == str(end - start)
    past = await api.get(path, headers={"Range": "bytes=3000000-"})
    assert (past.status, past.code) == (416, "range_not_satisfiable")
    assert past.headers["Content-Range"] == "bytes */3000000"
    for ignored in ("lines=1-2", "bytes=9-2", "bytes=1-2,5-6", "bytes=-", "bytes=a-b"):
        assert (await api.get(path, headers={"Range": ignored})).status == 200


@given(st.integers(0, 50), st.integers(0, 60) | st.none(), st.integers(0, 60) | st.none())
def test_a_range_is_what_the_standard_says(size: int, first: int | None, last: int | None) -> None:
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    data = list(range(size))
    if (first is None and last is None) or (first is not None and last is not None and last < first):
        wanted = data
    elif first is None:
        wanted = data[max(0, size - (last or 0)) :]
    else:
        wanted = data[first:] if last is None else data[first : last + 1]
    if not wanted and not (first is None and last is None):
        if size or (first is None or last is None or first <= last):
            with pytest.raises(GenflowError) as caught:
                byte_range(header, size)
            assert (caught.value.status, caught.value.headers["Content-Range"]) == (416, f"bytes */{size}")
        return
    start, end = byte_range(header, size)
    assert data[start:end] == wanted


async def test_a_nodes_file_never_runs_as_a_page_of_ours(api: Client, bench: Bench, store: LocalStore) -> None:
    page, _ = await keep(bench, store, b"<script>", 'a/"b\r\nä.html', "text/html")
    answer = await api.get(f"{ASSETS}/{page}/content")
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''%22b%0D%0A%C3%A4.html"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    drawing, _ = await keep(bench, store, b"<svg/>", "a.svg", "image/svg+xml")
    assert (await api.get(f"{ASSETS}/{drawing}/content")).headers["Content-Disposition"].startswith("attachment")
    image, _ = await keep(bench, store, b"png")
    assert (await api.get(f"{ASSETS}/{image}/content")).headers["Content-Disposition"].startswith("inline")


async def test_what_is_not_there_is_404(api: Client, bench: Bench, store: LocalStore) -> None:
    for asset_id in (uuid4(), "nope"):
        for path in (f"{ASSETS}/{asset_id}", f"{ASSETS}/{asset_id}/content"):
            answer = await api.get(path)
            assert (answer.status, answer.code) == (404, "not_found")
    lost, blob = await keep(bench, store, b"bytes")
    await store.delete(blob.hash)
    answer = await api.get(f"{ASSETS}/{lost}/content")
    assert (answer.status, answer.code) == (404, "blob_missing")


async def test_links_are_as_the_client_reaches_us(
    api: Client, bench: Bench, store: LocalStore, settings: Settings
) -> None:
    asset_id, _ = await keep(bench, store, b"bytes")

    async def link(client: Client, **headers: str) -> str:
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        url: str = (await client.get(f"{ASSETS}/{asset_id}", headers=shown)).json["url"]
        return url.partition(f"/api/v2/assets/{asset_id}/content?")[0]

    assert await link(api) == api.url
    assert await link(api, Host="gen.example:81") == "http://gen.example:81"
    forwarded = {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "pics.example, inner"}
    assert await link(api, **forwarded, X_Forwarded_Prefix="/flow/") == "https://pics.example/flow"
    evil = {"X_Forwarded_Proto": "javascript", "X_Forwarded_Host": "a/b@c", "X_Forwarded_Prefix": "//x?y"}
    assert await link(api, **evil) == api.url
    fixed = settings.model_copy(update={"public_url": "https://fixed.example/base/"})
    async with serving(bench.queue, store, fixed, bench.pool) as client:
        assert await link(client, **forwarded) == "https://fixed.example/base"
        for prefix in ("", "/base"):
            assert (await client.get(f"{prefix}{ASSETS}/{asset_id}/content")).body == b"bytes", (
                "by a proxy, or directly"
            )
        assert (await client.get(f"/other{ASSETS}/{asset_id}")).status == 404
