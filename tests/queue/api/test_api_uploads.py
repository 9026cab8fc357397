"""Assets come in: streamed, checked by hash, kept once, each tenant by itself, and safe to send again."""

from __future__ import annotations

import asyncio
import io
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from blake3 import blake3
from PIL import Image

from genflow.failures import Policy
from genflow.queue.records import NewJob
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Answer, Client
from tests.support.photos import encoded, picture

ASSETS = "/api/v2/assets"


def hash_of(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


def form(data: bytes | None, *, texts_last: bool = False, **texts: Any) -> aiohttp.FormData:
    fields = {"content_type": "image/png", "file_path": "photo.png"} | texts
    made = aiohttp.FormData(default_to_multipart=True)
    if data is not None and texts_last:
        made.add_field("file", data, filename="x")
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                made.add_field(name, str(each))
    if data is not None and not texts_last:
        made.add_field("file", data, filename="x")
    return made


def kept(store: LocalStore) -> list[str]:
    """The files of a store's blobs, those on their way too."""
    return [path.name for path in store._blobs.rglob("*") if path.is_file()]


async def upload(api: Client, data: bytes | None, key: str | None = None, **texts: Any) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.post(ASSETS, data=form(data, **texts), headers=headers)


async def test_bytes_are_kept_once_and_each_upload_is_an_asset_of_its_own(api: Client, store: LocalStore) -> None:
    data = b"bytes" * 100_000
    first = await upload(api, data, expected_hash=hash_of(data), tags=["input", "face"], surprise="ignored")
    assert first.status == 201
    asset = first.json
    assert (asset["hash"], asset["size_bytes"], asset["created_new"]) == (hash_of(data), len(data), True)
    assert (asset["file_path"], asset["tags"], asset["job_id"]) == ("photo.png", ["face", "input"], None)
    again = await upload(api, data, texts_last=True, file_path="twin.png")
    assert (again.status, again.json["created_new"]) == (200, False)
    assert again.json["id"] != asset["id"]
    for each in (asset, again.json):
        assert (await api.get(f"{ASSETS}/{each['id']}/content")).body == data
    assert len(kept(store)) == 1

    assert (await api.ask("HEAD", f"{ASSETS}/by-hash/{hash_of(data)}")).status == 200
    for other in (hash_of(b"other"), "blake3:xyz", "nope"):
        assert (await api.ask("HEAD", f"{ASSETS}/by-hash/{other}")).status == 404
    minted = await api.post(f"{ASSETS}/from-hash", json={"hash": hash_of(data), "file_path": "third.png"})
    assert (minted.status, minted.json["file_path"], minted.json["created_new"]) == (201, "third.png", False)
    known = await api.post(f"{ASSETS}/from-hash", json={"hash": hash_of(data), "file_path": "third.png"})
    assert (known.status, known.json["id"], known.json["created_new"]) == (200, minted.json["id"], False)
    unknown = await api.post(f"{ASSETS}/from-hash", json={"hash": hash_of(b"other")})
    assert (unknown.status, unknown.code) == (404, "blob_not_found")


async def test_a_record_goes_and_its_bytes_stay_for_the_others(api: Client, bench: Bench) -> None:
    data = b"shared"
    first, second = [(await upload(api, data)).json["id"] for _ in range(2)]
    job = NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy(), assets=(UUID(first),))
    await bench.queue.enqueue(job)
    used = await api.ask("DELETE", f"{ASSETS}/{first}")
    assert (used.status, used.code) == (409, "asset_in_use")
    await bench.queue.cancel(job.id)
    assert (await api.ask("DELETE", f"{ASSETS}/{first}")).status == 204
    assert (await api.ask("DELETE", f"{ASSETS}/{first}")).status == 404
    assert (await api.get(f"{ASSETS}/{first}")).status == 404
    assert (await api.get(f"{ASSETS}/{second}/content")).body == data


async def test_an_upload_is_safe_to_send_again(api: Client) -> None:
    made = await upload(api, b"one", key="k")
    assert made.status == 201
    for data in (b"one", b"two"):
        refused = await upload(api, data, key="k")
        assert (refused.status, refused.code) == (422, "idempotency_key_reuse")
        assert refused.details["asset_id"] == made.json["id"]
    failed = await upload(api, b"three", key="free", expected_hash=hash_of(b"other"))
    assert (failed.status, failed.code) == (409, "hash_mismatch")
    assert (await upload(api, b"three", key="free")).status == 201, "a key that made nothing is free"
    answers = await asyncio.gather(*(upload(api, bytes([number]), key="many") for number in range(10)))
    assert sorted(answer.status for answer in answers) == [201] + [422] * 9


@pytest.mark.parametrize(
    ("texts", "status", "code", "field"),
    [
        ({"file_path": None}, 422, "invalid_request", "file_path"),
        ({"content_type": None}, 422, "invalid_request", "content_type"),
        ({"content_type": "png"}, 422, "invalid_request", "content_type"),
        ({"file_path": "../x.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "a\\..\\x.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "/etc/passwd"}, 422, "invalid_request", "file_path"),
        ({"file_path": "C:x.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "models/checkpoints/x.safetensors"}, 422, "invalid_request", "file_path"),
        ({"file_path": "a//x.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "./x.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "a\nb.png"}, 422, "invalid_request", "file_path"),
        ({"file_path": "x" * 1_025}, 422, "invalid_request", "file_path"),
        ({"expected_hash": "blake3:abc"}, 422, "invalid_request", "expected_hash"),
        ({"expected_hash": hash_of(b"other")}, 409, "hash_mismatch", "expected_hash"),
        ({"expires_in": "59"}, 422, "invalid_request", "expires_in"),
        ({"expires_in": "604801"}, 422, "invalid_request", "expires_in"),
        ({"expires_in": "soon"}, 422, "invalid_request", "expires_in"),
        ({"tags": ["x" * 129]}, 422, "invalid_request", "tags"),
        ({"tags": [str(number) for number in range(33)]}, 422, "invalid_request", "tags"),
        ({"content_type": "x" * 20_000}, 400, "invalid_request", "content_type"),
        ({"file_path": ["a.png", "b.png"]}, 400, "invalid_request", "file_path"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_kept(
    api: Client, bench: Bench, store: LocalStore, texts: dict[str, Any], status: int, code: str, field: str
) -> None:
    for last in (False, True):
        answer = await upload(api, b"bytes", texts_last=last, **texts)
        assert (answer.status, answer.code, answer.details["field"]) == (status, code, field)
        assert kept(store) == []
    assert await bench.rows("select id from genflow.assets") == []


async def test_a_form_that_is_none_is_refused(api: Client, store: LocalStore) -> None:
    assert (await upload(api, None)).details["field"] == "file"
    two = form(b"one")
    two.add_field("file", b"two", filename="y")
    assert (await api.post(ASSETS, data=two)).status == 400
    other = form(b"one")
    other.add_field("other", b"two", filename="y")
    assert (await api.post(ASSETS, data=other)).status == 400
    assert (await api.post(ASSETS, json={})).status == 415
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for body in (b"", b"nonsense", b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf"):
        answer = await api.post(ASSETS, data=body, headers=headers)
        assert (answer.status, answer.code) == (400, "invalid_request")
    for kind in ("multipart/form-data", f"multipart/form-data; boundary={'x' * 300}"):
        assert (await api.post(ASSETS, data=b"", headers={"Content-Type": kind})).status == 400
    assert kept(store) == []


async def test_retention_may_be_asked_for_and_is_never_cut_short(api: Client, bench: Bench) -> None:
    made = (await upload(api, b"x", expires_in="60")).json
    [[row]] = [await bench.rows("select expires_at - created_at as kept from genflow.assets")]
    assert row["kept"].total_seconds() == 60
    asked = {"hash": made["hash"], "file_path": "photo.png", "expires_in": 120}
    longer = (await api.post(f"{ASSETS}/from-hash", json=asked)).json
    assert (longer["id"], longer["expires_at"] > made["expires_at"]) == (made["id"], True)
    shorter = (await api.post(f"{ASSETS}/from-hash", json=asked | {"expires_in": 60})).json
    assert shorter["expires_at"] == longer["expires_at"]
    assert made["url_expires_at"] <= made["expires_at"]


async def test_one_tenants_bytes_are_unknown_to_another(api: Client, bench: Bench) -> None:
    made = (await upload(api, b"mine")).json
    await bench.rows("update genflow.assets set tenant_id = 2 returning 1")
    assert (await api.get(f"{ASSETS}/{made['id']}")).status == 404
    assert (await api.ask("DELETE", f"{ASSETS}/{made['id']}")).status == 404
    assert (await api.ask("HEAD", f"{ASSETS}/by-hash/{made['hash']}")).status == 404
    assert (await api.post(f"{ASSETS}/from-hash", json={"hash": made["hash"]})).status == 404
    again = await upload(api, b"mine")
    assert (again.status, again.json["created_new"]) == (201, True), "not even by saying that the bytes were there"


async def test_a_small_picture_is_made_of_a_large_one(api: Client) -> None:
    large = (await upload(api, encoded(picture(800, 400, "RGBA"), "PNG"))).json["id"]
    for kind in ("webp", "jpeg", "png"):
        answer = await api.get(f"{ASSETS}/{large}/content?w=100&format={kind}")
        small = Image.open(io.BytesIO(answer.body))
        assert (answer.headers["Content-Type"], small.format, small.size) == (f"image/{kind}", kind.upper(), (100, 50))
    for query in ("w=1", "w=5000", "w=x", "w=100&format=gif"):
        assert (await api.get(f"{ASSETS}/{large}/content?{query}")).code == "invalid_request"
    for refused in ("w=0000100", "w=2049"):
        assert (await api.get(f"{ASSETS}/{large}/content?{refused}")).status == 400
    turned = Image.Exif()
    turned[0x0112] = 6
    lying = (await upload(api, encoded(picture(800, 400), exif=turned))).json["id"]
    upright = Image.open(io.BytesIO((await api.get(f"{ASSETS}/{lying}/content?w=100")).body))
    assert upright.size == (100, 200), "as its EXIF says"
    bitmap = (await upload(api, encoded(picture(), "BMP"), content_type="image/bmp")).json["id"]
    answer = await api.get(f"{ASSETS}/{bitmap}/content?w=100")
    assert (answer.status, answer.code) == (422, "unsupported_image"), "few readers see what comes from outside"
    text = (await upload(api, b"no picture", content_type="text/plain", file_path="a.txt")).json["id"]
    answer = await api.get(f"{ASSETS}/{text}/content?w=100")
    assert (answer.status, answer.code) == (422, "unsupported_image")


async def test_a_look_at_the_headers_reads_no_bytes(
    api: Client, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await upload(api, b"bytes")).json["id"]
    monkeypatch.delattr(LocalStore, "read")
    whole = await api.ask("HEAD", f"{ASSETS}/{made}/content")
    assert (whole.status, whole.headers["Content-Length"], whole.headers["Accept-Ranges"]) == (200, "5", "bytes")
    part = await api.ask("HEAD", f"{ASSETS}/{made}/content", headers={"Range": "bytes=1-2"})
    assert (part.status, part.headers["Content-Range"]) == (206, "bytes 1-2/5")
    past = await api.ask("HEAD", f"{ASSETS}/{made}/content", headers={"Range": "bytes=5-"})
    assert past.status == 416


async def test_a_signed_link_opens_whosever_file_it_is_for(api: Client, bench: Bench) -> None:
    made = (await upload(api, b"mine")).json
    other = (await upload(api, b"other")).json
    await bench.rows("update genflow.assets set tenant_id = 2 returning 1")
    plain, _, query = made["url"].removeprefix(api.url).partition("?")
    assert (await api.get(f"{plain}?{query}")).body == b"mine"
    for changed in ("", query[:-1], f"{query}0", query.replace("expires=", "expires=1")):
        assert (await api.get(f"{plain}?{changed}")).status == 404
    assert (await api.get(f"{ASSETS}/{other['id']}/content?{query}")).status == 404
    assert (await api.get(f"{ASSETS}/{made['id']}?{query}")).status == 404, "the bytes, not the record"
