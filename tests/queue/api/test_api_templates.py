"""A job by a template's parameters over HTTP: the example template, the portrait, and files by asset and by URL."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from aiohttp import web
from PIL import Image

from genflow.errors import GenflowError
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.api.test_api_batches import NDJSON
from tests.queue.api.test_api_jobs import a_job, count, stored
from tests.queue.api.test_api_portraits import PORTRAITS
from tests.queue.conftest import Bench
from tests.support.api import Answer, Client, serving
from tests.support.photos import encoded, picture
from tests.support.repository import ROOT

JOBS = "/genflow/v1/jobs"
TEMPLATES = ROOT / "examples" / "templates"


@pytest.fixture
def settings() -> Settings:
    return Settings.model_validate({"templates": TEMPLATES, "fetch_allow": "127.0.0.1/32", "max_fetch_bytes": 50_000})


def secret_photo() -> bytes:
    exif = Image.Exif()
    exif[0x010E] = "SECRET"
    exif[0x0112] = 6
    return encoded(picture(200, 160), exif=exif)


async def upload(api: Client, data: bytes, content_type: str = "image/jpeg", name: str = "me.jpg") -> str:
    form = aiohttp.FormData({"content_type": content_type, "file_path": name})
    form.add_field("file", data, filename=name)
    answer = await api.post("/api/v2/assets", data=form)
    assert answer.status in (200, 201), answer.json
    asset: str = answer.json["id"]
    return asset


async def send(api: Client, template: Any = "square", headers: dict[str, str] | None = None, **body: Any) -> Answer:
    return await api.post(JOBS, json={"template": template} | body, headers=headers)


async def input_of(bench: Bench, store: LocalStore, job: str) -> tuple[dict[str, Any], bytes]:
    """The asset that the job's only file is, and its bytes."""
    [row] = await bench.rows(
        "select a.* from genflow.job_assets r join genflow.assets a on a.id = r.asset_id where r.job_id = %s", UUID(job)
    )
    return row, b"".join([chunk async for chunk in store.read(bytes(row["blob_hash"]))])


async def test_templates_are_listed_with_their_bounds(api: Client) -> None:
    listed = (await api.get("/genflow/v1/templates")).json["templates"]
    assert [each["name"] for each in listed] == ["portrait", "square"]
    side = next(each for each in listed[1]["parameters"] if each["name"] == "side")
    assert (side["kind"], side["low"], side["high"], side["step"], side["default"]) == ("whole", 64, 1024, 8, 256)
    assert (await api.get("/genflow/v1/templates/square")).json == listed[1]
    assert (await api.get("/genflow/v1/templates/circle")).code == "unknown_template"


async def test_values_and_a_file_make_a_job(api: Client, bench: Bench, store: LocalStore) -> None:
    asset = await upload(api, b"any bytes", "application/octet-stream")
    answer = await send(
        api, set={"picture": asset, "side": 128}, metadata={"order": "7"}, start_by_s=60, priority=-3
    )  # fmt: skip
    assert answer.status == 201, answer.json
    job = a_job(answer.json)
    assert answer.headers["Location"] == job["urls"]["self"]
    assert job["metadata"] == {"order": "7"}
    spec = await stored(bench, job["id"])
    graph = json.loads(spec["workflow"])
    assert graph["1"]["inputs"]["image"]["info"]["id"] == asset
    assert (graph["2"]["inputs"]["width"], graph["2"]["inputs"]["upscale_method"]) == (128, "lanczos")
    assert spec["params"] == {"picture": asset, "side": 128, "method": "lanczos"}
    row = await bench.row(UUID(job["id"]))
    assert (row["priority"], row["start_by"] is not None) == (-3, True)
    ref = {"__type": "core/ASSET", "info": {"id": asset}}
    again = await send(api, set={"picture": ref}, headers={"Idempotency-Key": "one"})
    assert (await input_of(bench, store, again.json["id"]))[1] == b"any bytes"
    reused = await send(api, set={"picture": ref}, headers={"Idempotency-Key": "one"})
    assert (reused.code, reused.details["job_id"]) == ("idempotency_key_reuse", again.json["id"])


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"template": "circle"}, "unknown_template", "template"),
        ({"template": None}, "unknown_template", "template"),
        ({"set": [1]}, "invalid_parameter", "set"),
        ({"set": {}}, "invalid_parameter", "picture"),
        ({"set": {"picture": 7}}, "invalid_parameter", "picture"),
        ({"set": {"picture": "nope"}}, "missing_asset", "picture"),
        ({"set": {"picture": str(uuid4())}}, "missing_asset", "picture"),
        ({"set": {"picture": {"__type": "core/ASSET"}}}, "missing_asset", "picture"),
        ({"set": {"picture": "a", "side": 60}}, "invalid_parameter", "side"),
        ({"set": {"picture": "a", "colour": 60}}, "invalid_parameter", "colour"),
        ({"priority": 1000}, "invalid_parameter", "priority"),
        ({"start_by_s": 0}, "invalid_parameter", "start_by_s"),
        ({"photo": "x"}, "invalid_parameter", "photo"),
        ({"metadata": {"a": 1}}, "metadata_invalid", "metadata"),
        ({"set": {"picture": "http://10.0.0.1/a.png"}}, "url_refused", "picture"),
        ({"set": {"picture": "ftp://example.com/a.png"}}, "url_refused", "picture"),
    ],
)
async def test_what_is_wrong_is_named(api: Client, bench: Bench, body: dict[str, Any], code: str, field: str) -> None:
    answer = await send(api, **body)
    assert (answer.status, answer.code, answer.details["field"]) == (422, code, field)
    assert await count(bench, "jobs") == 0


async def test_a_photo_is_clean_whatever_way_it_comes(api: Client, bench: Bench, store: LocalStore, site: str) -> None:
    asset = await upload(api, secret_photo())
    values = {"prompt": "x", "seed": 7}
    for answer in (
        await send(api, "portrait", set=values | {"photo": asset}),
        await send(api, "portrait", set=values | {"photo": f"{site}/me.jpg"}),
        await api.post(PORTRAITS, json=values | {"photo_asset": asset}),
        await api.post(PORTRAITS, json=values | {"photo_url": f"{site}/me.jpg"}),
    ):
        assert answer.status == 201, answer.json
        assert answer.json["seed"] == 7
        row, data = await input_of(bench, store, answer.json["id"])
        assert row["content_type"] == "image/jpeg"
        assert b"SECRET" not in data
        assert Image.open(io.BytesIO(data)).size == (160, 200), "upright"
    for bad, code in (
        ({"photo_url": f"{site}/page"}, "url_refused"), ({"photo_url": "me.jpg"}, "url_refused"),
        ({"photo_url": 7}, "invalid_parameter"), ({"photo_url": f"{site}/x.png"}, "unsupported_image"),
        ({"photo_asset": f"{site}/me.jpg"}, "missing_asset"),
        ({"photo_url": f"{site}/me.jpg", "photo_asset": asset}, "invalid_parameter"),
    ):  # fmt: skip
        answer = await api.post(PORTRAITS, json=values | bad)
        assert (answer.status, answer.code, answer.details["field"]) == (422, code, next(iter(bad))), bad


async def test_a_file_by_its_url_becomes_an_asset(api: Client, bench: Bench, site: str) -> None:
    made = await api.post("/genflow/v1/assets", json={"url": f"{site}/x.png"})
    assert (made.status, made.json["file_path"], made.json["content_type"]) == (201, "x.png", "image/png")
    assert (await api.get(f"/api/v2/assets/{made.json['id']}/content")).body == b"no picture"
    assert (await send(api, set={"picture": f"{site}/x.png"})).status == 201
    for body, code, reason in (
        ({"url": f"{site}/big"}, "url_refused", "too_large"), ({"url": f"{site}/none"}, "url_failed", "status"),
        ({"url": "http://[::1]/"}, "url_refused", "loopback"), ({}, "invalid_parameter", "missing"),
        ({"url": 7}, "invalid_parameter", "not_a_text"), ({"uri": "x"}, "invalid_parameter", "unknown_field"),
    ):  # fmt: skip
        answer = await api.post("/genflow/v1/assets", json=body)
        assert (answer.status, answer.code, answer.details["reason"]) == (422, code, reason)


async def test_a_wait_ends_with_the_job_and_not_before(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    assert (await api.get(f"{JOBS}/{job}?wait=1")).json["state"] == "queued"
    waits = [asyncio.create_task(api.get(f"{JOBS}/{job}?wait=30")) for _ in range(20)]
    await asyncio.sleep(0)
    await api.post(f"/api/v2/jobs/{job}/cancel")
    async with asyncio.timeout(5):
        assert {(await wait).json["state"] for wait in waits} == {"canceled"}
        assert (await api.get(f"{JOBS}/{job}?wait=60")).json["state"] == "canceled"
        assert (await api.get(f"{JOBS}/{uuid4()}?wait=60")).status == 404
    for wrong in ("-1", "soon", "1.5", ""):
        assert (await api.get(f"{JOBS}/{job}?wait={wrong}")).code == "invalid_request"


async def test_rows_over_a_template_are_made_once(api: Client, bench: Bench, site: str) -> None:
    asset = await upload(api, secret_photo())
    row = {"template": "portrait", "set": {"prompt": "x", "photo": asset}}
    named = {"__type": "core/ASSET", "info": {"id": asset, "file_path": "faces/anna.jpg"}}
    rows = [
        row, row | {"set": {"prompt": "y", "photo": named}}, row | {"set": {"prompt": "x", "photo": f"{site}/me.jpg"}},
    ]  # fmt: skip
    body = "\n".join(json.dumps(each) for each in rows).encode()
    first = await api.post("/genflow/v1/batches", data=body, headers=NDJSON)
    assert (first.status, first.json["queued"]) == (201, 3), first.json
    again = await api.post("/genflow/v1/batches", data=body, headers=NDJSON)
    assert (again.status, again.json["id"], await count(bench, "jobs")) == (201, first.json["id"], 3)
    listed = (await api.get(f"/genflow/v1/batches/{first.json['id']}/rows")).json["rows"]
    assert [each["set"]["photo"] for each in listed] == [asset, "faces/anna.jpg", f"{site}/me.jpg"]
    other = await api.post(
        "/genflow/v1/batches", headers=NDJSON,
        data=b"\n" + json.dumps(row | {"set": {"prompt": ""}}).encode() + b"\n" + json.dumps(row).encode(),
    )  # fmt: skip
    assert (other.code, [bad["line"] for bad in other.details["lines"]]) == ("jobs_file_invalid", [2])
    assert await count(bench, "jobs") == 3


async def test_a_service_does_not_start_over_what_it_cannot_use(bench: Bench, store: LocalStore, tmp_path: Any) -> None:
    (tmp_path / "bad.toml").write_text("workflow = 7")
    for wrong, code in (({"templates": tmp_path}, "template_invalid"), ({"fetch_allow": "*"}, "setting_invalid")):
        with pytest.raises(GenflowError) as caught:
            async with serving(bench.queue, store, Settings.model_validate(wrong), bench.pool):
                pass
        assert caught.value.code == code


async def _file(request: web.Request) -> web.Response:
    match request.path:
        case "/me.jpg":
            return web.Response(body=secret_photo(), content_type="image/jpeg")
        case "/x.png":
            return web.Response(body=b"no picture", content_type="image/png")
        case "/big":
            return web.Response(body=b"x" * 50_001)
        case "/page":
            return web.Response(text="<html>", content_type="text/html")
    raise web.HTTPNotFound


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """A web server of somebody else's; its address."""
    app = web.Application()
    app.router.add_get("/{name}", _file)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
