"""A photo and a prompt over HTTP: what arrives at the worker is the clean photo and the portrait's workflow."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import psycopg
from PIL import Image

from genflow.api.portraits import preferred_wait_s
from genflow.jobs import State
from genflow.queue.records import InputFile
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.workflow import asset_refs
from tests.queue.api.test_api_jobs import a_job, count, finished, know, stored
from tests.queue.conftest import Bench
from tests.support.api import Answer, Client, serving
from tests.support.photos import encoded, picture

PORTRAITS = "/genflow/v1/portraits"


async def send(api: Client, photo: bytes | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    """Post a form; `photo` None = a good one."""
    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, value)
    exif = Image.Exif()
    exif[0x010E] = "SECRET"
    data = encoded(picture(), exif=exif) if photo is None else photo
    form.add_field("photo", io.BytesIO(data), filename="me.jpg")
    return await api.post(PORTRAITS, data=form, headers=headers)


async def inputs(bench: Bench) -> list[InputFile]:
    """The files that a worker would take to its server for the next job."""
    [hold] = await bench.claim("w1", await bench.server())
    return (await (await bench.worker("w1")).load(hold)).inputs


async def bytes_of(store: LocalStore, file: InputFile) -> bytes:
    return b"".join([chunk async for chunk in store.read(file.hash)])


async def test_a_form_makes_a_job_over_the_clean_photo(api: Client, bench: Bench, store: LocalStore) -> None:
    answer = await send(
        api, prompt="as an astronaut ünïcode", seed="18446744073709551615", cfg="6.5", lora="oil", count="2",
        metadata='{"order": "7"}', start_by_s="60",
    )  # fmt: skip
    assert answer.status == 201
    job = a_job(answer.json)
    assert (job["status"], job["seed"], job["metadata"]) == ("queued", 2**64 - 1, {"order": "7"})
    spec = await stored(bench, job["id"])
    assert spec["params"]["prompt"] == "as an astronaut ünïcode"
    assert spec["params"]["lora_strength"] == 0.8
    graph = json.loads(spec["workflow"])
    assert '"seed": 18446744073709551615' in spec["workflow"]
    assert '"cfg": 6.5' in spec["workflow"]
    assert graph["2"]["inputs"]["lora_name"] == "style_dummy.safetensors"
    assert graph["8"]["inputs"]["batch_size"] == 2
    assert (await bench.row(UUID(job["id"])))["start_by"] is not None
    [file] = await inputs(bench)
    [ref] = asset_refs(graph)
    assert graph["3"]["inputs"]["image"]["info"] == {"id": str(file.asset_id), "hash": f"blake3:{file.hash.hex()}"}
    assert (ref.id, file.content_type) == (file.asset_id, "image/jpeg")
    data = await bytes_of(store, file)
    assert len(data) == file.size
    assert b"SECRET" not in data
    assert Image.open(io.BytesIO(data)).size == (200, 160)


async def test_json_names_an_asset_and_an_output_is_one(api: Client, bench: Bench) -> None:
    _, output_id = await finished(bench)
    body = {"prompt": "again", "photo_asset": str(output_id), "steps": 30, "metadata": {"a": "b"}, "start_by_s": None}
    answer = await api.post(PORTRAITS, json=body)
    assert answer.status == 201
    assert 0 <= answer.json["seed"] < 2**64
    spec = await stored(bench, answer.json["id"])
    assert spec["params"]["seed"] == json.loads(spec["workflow"])["9"]["inputs"]["seed"] == answer.json["seed"]
    assert spec["params"]["steps"] == 30
    assert [ref.id for ref in asset_refs(json.loads(spec["workflow"]))] == [output_id]
    assert [file.asset_id for file in await inputs(bench)] == [output_id]
    for look in (f"/api/v2/jobs/{answer.json['id']}", f"/genflow/v1/jobs/{answer.json['id']}"):
        assert (await api.get(look)).json["seed"] == answer.json["seed"]


async def test_two_absent_seeds_are_two_seeds(api: Client) -> None:
    answers = [await send(api, prompt="x", seed="") for _ in range(2)]
    assert answers[0].json["seed"] != answers[1].json["seed"]


async def test_a_key_makes_one_portrait(api: Client, bench: Bench) -> None:
    key = {"Idempotency-Key": "portrait"}
    answers = await asyncio.gather(*(send(api, headers=key, prompt="x") for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [201, 422, 422, 422]
    assert {answer.code for answer in answers if answer.status == 422} == {"idempotency_key_reuse"}
    assert await count(bench, "jobs") == 1


HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + b"\x00" * 100


async def test_a_bad_photo_is_named_and_leaves_nothing(api: Client, bench: Bench, store: LocalStore) -> None:
    whole = encoded(picture())
    for photo, code, reason in [
        (b"", "invalid_image", "empty"),
        (whole[: len(whole) // 2], "invalid_image", "truncated"),
        (encoded(picture(126, 200)), "invalid_image", "too_small"),
        (b"<html><body>not found</body></html>", "unsupported_image", "unsupported_format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported_image", "unsupported_format"),
        (HEIC, "unsupported_image", "unsupported_format"),
    ]:
        answer = await send(api, photo, prompt="x")
        assert (answer.status, answer.code) == (422, code), photo[:20]
        assert (answer.details["field"], answer.details["reason"]) == ("photo", reason)
        assert {"limit", "got"} <= set(answer.details)
    assert "HEIC" in (answer := await send(api, HEIC, prompt="x")).json["error"]["message"]
    assert "JPEG, PNG and WebP" in answer.json["error"]["message"]
    assert await count(bench, "jobs") == await count(bench, "assets") == 0


async def test_a_photo_over_the_limit_is_413_also_before_it_was_sent(bench: Bench, store: LocalStore) -> None:
    limit = 100_000
    async with serving(bench.queue, store, Settings(max_photo_bytes=limit), bench.pool) as api:
        answer = await send(api, encoded(picture()).ljust(limit + 1), prompt="x")
        assert (answer.status, answer.code) == (413, "payload_too_large")
        assert (answer.details["field"], answer.details["limit"]) == ("photo", limit)
        assert (await send(api, encoded(picture()).ljust(limit), prompt="x")).status == 201

        answered = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="photo"; filename="me.jpg"\r\n\r\n'
            for _ in range(5 * 1024):
                yield b"x" * 1024
            await answered.wait()

        answer = await api.post(PORTRAITS, data=endless(), headers={"Content-Type": "multipart/form-data; boundary=b"})
        answered.set()
        assert (answer.status, answer.code, answer.details["field"]) == (413, "payload_too_large", "photo")
    assert await count(bench, "jobs") == 1


async def test_a_bad_parameter_is_named(api: Client, bench: Bench) -> None:
    bad: dict[str, Any] = {
        "prompt": "", "negative_prompt": "x" * 10_001, "seed": "18446744073709551616", "steps": "0", "cfg": "31",
        "width": "500", "height": "4096", "count": "9", "lora": "watercolour", "lora_strength": "-3",
        "face_strength": "nan", "sampler": "best", "scheduler": "x", "start_by_s": "0", "photo_asset": str(uuid4()),
        "promt": "x",
    }  # fmt: skip
    for field, value in bad.items():
        answer = await send(api, **({"prompt": "x"} | {field: value}))
        assert (answer.status, answer.code) == (422, "invalid_parameter"), field
        assert set(answer.details) == {"field", "reason", "limit", "got"}
        assert answer.details["field"] == field
    for prompt in ("a\x00b", "a\ud800b", "x" * 10_001, 7):
        body = json.dumps({"prompt": prompt, "photo_asset": str(uuid4())})
        answer = await api.post(PORTRAITS, data=body, headers={"Content-Type": "application/json"})
        assert (answer.status, answer.code, answer.details["field"]) == (422, "invalid_parameter", "prompt")
    assert "oil" in (await send(api, prompt="x", lora="watercolour")).json["error"]["message"]
    assert (await send(api, prompt="x", metadata='{"a": 1}')).code == "metadata_invalid"
    assert await count(bench, "jobs") == await count(bench, "assets") == 0


async def test_exactly_one_photo_is_wanted(api: Client, bench: Bench, store: LocalStore) -> None:
    async def refused(body: dict[str, Any]) -> tuple[str, str]:
        answer = await api.post(PORTRAITS, json={"prompt": "x", **body})
        assert answer.status == 422
        return answer.code, answer.details["field"]

    assert await refused({}) == ("invalid_parameter", "photo")
    assert await refused({"photo": "aGVsbG8="}) == ("invalid_parameter", "photo")
    assert await refused({"photo_asset": 7}) == ("invalid_parameter", "photo_asset")
    assert await refused({"photo_asset": "nope"}) == ("missing_asset", "photo_asset")
    assert await refused({"photo_asset": str(uuid4())}) == ("missing_asset", "photo_asset")
    blob = await store.put(_chunks(b"text"))
    text = await bench.queue.files.add(blob, name="a.txt", type="text", content_type="text/plain")
    assert await refused({"photo_asset": str(text)}) == ("unsupported_image", "photo_asset")
    form = aiohttp.FormData({"prompt": "x", "photo": "only text"}, default_to_multipart=True)
    answer = await api.post(PORTRAITS, data=form)
    assert (answer.code, answer.details["field"]) == ("invalid_parameter", "photo")


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_form_that_is_none_is_refused(api: Client) -> None:
    multipart = {"Content-Type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\nx\r\n'
    for headers, body, status, code in [
        ({"Content-Type": "multipart/form-data"}, b"", 400, "invalid_request"),
        (multipart, b"nonsense", 400, "invalid_request"),
        (multipart, b"--b\r\nX: y\r\n\r\nx\r\n--b--\r\n", 400, "invalid_request"),
        (multipart, part % (b"prompt", b"") * 2 + b"--b--\r\n", 400, "invalid_request"),
        (multipart, part % (b"photo", b'; filename="a"') * 2 + b"--b--\r\n", 400, "invalid_request"),
        (multipart, part % (b"other", b'; filename="a"') + b"--b--\r\n", 400, "invalid_request"),
        (multipart, b"".join(part % (b"f%d" % n, b"") for n in range(65)) + b"--b--\r\n", 400, "invalid_request"),
        (multipart, part.replace(b"x", b"x" * 200_000) % (b"prompt", b"") + b"--b--\r\n", 400, "invalid_request"),
        (multipart, part % (b"metadata", b"") + part % (b"prompt", b"") + b"--b--\r\n", 400, "invalid_request"),
        ({"Content-Type": "text/plain"}, b"prompt", 415, "unsupported_media_type"),
        ({"Content-Type": "application/json"}, b"[1]", 400, "invalid_request"),
        ({"Content-Type": "application/json"}, b'{"prompt": NaN}', 400, "invalid_request"),
    ]:
        answer = await api.post(PORTRAITS, data=body, headers=headers)
        assert (answer.status, answer.code) == (status, code), body[:100]


async def test_nodes_that_no_server_has_are_found_before_the_photo_is_kept(
    api: Client, bench: Bench, store: LocalStore
) -> None:
    await know(bench, {"KSampler": {"output_node": False}, "SaveImage": {"output_node": True}})
    answer = await send(api, prompt="x")
    assert (answer.status, answer.code) == (422, "invalid_workflow")
    assert "IPAdapterFaceID" in answer.json["error"]["message"]
    assert await count(bench, "assets") == 0


async def test_prefer_wait_holds_the_answer_until_the_end(api: Client, bench: Bench, database: str) -> None:
    server = await bench.server()
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("listen genflow")
        waiting = asyncio.create_task(send(api, headers={"Prefer": "respond-async, wait=30"}, prompt="x"))
        async for _ in connection.notifies(timeout=30, stop_after=1):
            [hold] = await bench.claim("w1", server)
            assert not waiting.done()
            await (await bench.worker("w1")).end_attempt(hold, state=State.CANCELED, no=None)
        answer = await waiting
    assert (answer.status, answer.json["status"]) == (201, "canceled")
    assert answer.headers["Preference-Applied"] == "wait=30"
    answer = await send(api, headers={"Prefer": "wait=1"}, prompt="x")
    assert (answer.status, answer.json["status"]) == (201, "queued")
    assert "Preference-Applied" not in (await send(api, prompt="x")).headers


def test_a_wait_is_read_from_among_other_preferences_and_bounded() -> None:
    assert preferred_wait_s([]) is None
    assert preferred_wait_s(["respond-async"]) is None
    assert preferred_wait_s(["await=5", "wait=x"]) is None
    assert preferred_wait_s(["respond-async", "wait=5"]) == 5
    assert preferred_wait_s(['handling=lenient; wait = "7"']) == 7
    assert preferred_wait_s(["wait=999999"]) == 60
