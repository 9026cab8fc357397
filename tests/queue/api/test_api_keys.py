"""Who may ask: keys, roles, tenants. Nobody sees another's job, file, batch, dead letter or hash."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from genflow.accounts import Accounts, Role, accounts
from genflow.api.document import OPEN, ROUTES
from genflow.errors import GenflowError
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Answer, Client, serving
from tests.support.service import small_workflow

JOBS = "/api/v2/jobs"


class Holder:
    """A client with a key."""

    def __init__(self, client: Client, key: str | None) -> None:
        self.client = client
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    async def ask(self, method: str, path: str, **request: Any) -> Answer:
        headers = self.headers | request.pop("headers", {})
        return await self.client.ask(method, path, headers=headers, **request)

    async def submit(self, key: str | None = None, color: int = 1) -> Answer:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.ask("POST", JOBS, json={"workflow": small_workflow(color=color)}, headers=headers)

    async def upload(self, data: bytes) -> Answer:
        form = aiohttp.FormData({"content_type": "text/plain", "file_path": "a.txt"}, default_to_multipart=True)
        form.add_field("file", data, filename="a.txt")
        return await self.ask("POST", "/api/v2/assets", data=form)


@pytest.fixture
def keys(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """The keys, of which nothing is remembered: what is changed is seen at once."""
    monkeypatch.setattr(accounts, "REMEMBERED_S", -1.0)
    return Accounts(bench.writer)


async def made(keys: Accounts, name: str, role: Role = Role.SUBMIT, tenant: str = "house") -> str:
    key, _ = await keys.create(name, role=role, tenant=tenant)
    return key


async def test_from_the_first_key_on_every_route_needs_one(api: Client, keys: Accounts) -> None:
    assert (await Holder(api, None).submit()).status == 201
    key = await made(keys, "app")
    for name in ROUTES:
        method, _, path = name.partition(" ")
        for part in ("{job_id}", "{asset_id}", "{batch_id}", "{given_id}", "{name}", "{hash}"):
            path = path.replace(part, str(uuid4()))
        answer = await api.ask(method, path)
        if path in OPEN:
            assert answer.status == 200, name
            continue
        assert answer.status == 401, name
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        if method != "HEAD":
            assert answer.code == "unauthorized"
    assert (await Holder(api, key).submit()).status == 201
    wrong = [key[:-1] + ("A" if key[-1] != "A" else "B"), "gf_nope", "", key.upper()]
    for each in wrong:
        assert (await Holder(api, each).submit()).status == 401, each
    other = await api.post(JOBS, json={}, headers={"X-API-Key": key})
    assert other.status == 401
    assert "X-API-Key is not read here" in other.json["error"]["message"]
    assert (await api.post(JOBS, json={}, headers={"Authorization": f"Basic {key}"})).status == 401
    async with api.session.get(f"{api.url}/openapi.json") as document:
        assert document.status == 200, "what the API is stays open"


async def test_a_key_is_revoked_and_rotated(api: Client, keys: Accounts, bench: Bench) -> None:
    first = await made(keys, "app")
    with pytest.raises(GenflowError, match="already"):
        await keys.create("app")
    second, record = await keys.rotate("app", keep_s=60.0)
    assert (record.name, record.role) == ("app", Role.SUBMIT)
    for key in (first, second):
        assert (await Holder(api, key).submit()).status == 201
    await bench.rows("update genflow.api_keys set ends_at = genflow.clock() where ends_at is not null returning 1")
    assert [(await Holder(api, key).submit()).status for key in (first, second)] == [401, 201]
    await keys.revoke("app")
    for each in (None, first, second):
        assert (await Holder(api, each).submit()).status == 401, "the end of the last key opens nothing"
    assert await Accounts(bench.writer).any(), "nor in a process that starts anew"
    for call in (keys.revoke("app"), keys.rotate("nobody", keep_s=0.0)):
        with pytest.raises(GenflowError, match="no key"):
            await call
    kept = json.dumps([{name: str(value) for name, value in row.items()} for row in await bench.rows(
        "select to_jsonb(k) as k from genflow.api_keys as k")])  # fmt: skip
    assert first not in kept
    assert first.rpartition("_")[2] not in kept


async def test_what_was_found_is_believed_for_a_moment_and_no_longer(
    keys: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(accounts, "REMEMBERED_S", 3.0)
    monkeypatch.setattr(accounts, "boottime", lambda: now)
    key = await made(keys, "app")
    assert await keys.find(key) is not None
    await keys.revoke("app")
    assert await keys.find(key) is not None
    now += 3.1
    assert await keys.find(key) is None
    monkeypatch.setattr(accounts, "REMEMBERED", 2)
    for number in range(5):
        await keys.find(f"gf_0000000{number}_{'x' * 43}")
    assert len(keys._found) == 2


async def test_the_fleet_is_for_operators_of_the_house(api: Client, keys: Accounts) -> None:
    submit = Holder(api, await made(keys, "app"))
    theirs = Holder(api, await made(keys, "other", Role.OPERATOR, "other"))
    operator = Holder(api, await made(keys, "ops", Role.OPERATOR))
    for path in ("/genflow/v1/servers", "/genflow/v1/workers", "/genflow/v1/status", "/metrics"):
        for holder in (submit, theirs):
            answer = await holder.ask("GET", path)
            assert (answer.status, answer.code) == (403, "forbidden")
        assert (await operator.ask("GET", path)).status == 200
    assert (await submit.ask("POST", "/genflow/v1/servers/x/drain")).status == 403
    assert (await operator.ask("POST", "/genflow/v1/servers/x/drain")).status == 404
    assert (await submit.ask("GET", "/genflow/v1/jobs")).status == 200


@pytest.fixture
async def two(api: Client, keys: Accounts) -> tuple[Holder, Holder]:
    """Two tenants with a key each."""
    return Holder(api, await made(keys, "anna", tenant="anna")), Holder(api, await made(keys, "ben", tenant="ben"))


async def test_nobody_sees_anothers_job_or_file(two: tuple[Holder, Holder]) -> None:
    anna, ben = two
    job = (await anna.submit("key")).json["id"]
    for method, path in (
        ("GET", f"{JOBS}/{job}"), ("GET", f"{JOBS}/{job}/workflow"), ("GET", f"{JOBS}/{job}/events"),
        ("POST", f"{JOBS}/{job}/cancel"), ("GET", f"/genflow/v1/jobs/{job}"),
    ):  # fmt: skip
        answer = await ben.ask(method, path)
        assert (answer.status, answer.code) == (404, "not_found"), path
    for path in (JOBS, "/genflow/v1/jobs"):
        assert (await ben.ask("GET", path)).json["jobs"] == []
        assert [each["id"] for each in (await anna.ask("GET", path)).json["jobs"]] == [job]
    assert (await anna.ask("GET", f"{JOBS}/{job}")).json["status"] == "queued", "nor cancels it"
    assert (await ben.submit("key")).status == 201, "idempotency keys are each tenant's own"
    assert (await anna.submit("key")).details["job_id"] == job

    file = (await anna.upload(b"private")).json
    for method, path in (
        ("GET", f"/api/v2/assets/{file['id']}"), ("GET", f"/api/v2/assets/{file['id']}/content"),
        ("DELETE", f"/api/v2/assets/{file['id']}"),
    ):  # fmt: skip
        assert (await ben.ask(method, path)).status == 404, path
    assert (await ben.ask("HEAD", f"/api/v2/assets/by-hash/{file['hash']}")).status == 404
    assert (await ben.ask("POST", "/api/v2/assets/from-hash", json={"hash": file["hash"]})).code == "blob_not_found"
    named = small_workflow() | {
        "9": {"class_type": "LoadImage", "inputs": {"image": {"__type": "core/ASSET", "info": {"id": file["id"]}}}}
    }
    refused = await ben.ask("POST", JOBS, json={"workflow": named})
    assert (refused.status, refused.code) == (422, "missing_asset")
    assert (await ben.upload(b"private")).json["created_new"] is True, "not even that its bytes were there"


async def test_a_signed_link_stands_in_for_a_key_for_one_file(two: tuple[Holder, Holder], api: Client) -> None:
    anna, _ = two
    file = (await anna.upload(b"shown in a page")).json
    other = (await anna.upload(b"other")).json
    link = file["url"].removeprefix(api.url)
    assert (await api.get(link)).body == b"shown in a page"
    assert (await api.ask("HEAD", link)).status == 200
    assert (await api.get(link.replace("signature=", "signature=0"))).code == "link_invalid"
    assert (await api.get(link.replace(file["id"], other["id"]))).code == "link_invalid"
    assert (await api.get(f"/api/v2/assets/{file['id']}?{link.partition('?')[2]}")).status == 401
    assert (await api.ask("DELETE", link)).status in (401, 405)


async def test_nobody_sees_anothers_batch_or_dead_letter(two: tuple[Holder, Holder], bench: Bench) -> None:
    anna, ben = two
    job = str(uuid4())
    line = json.dumps({"id": job, "workflow": small_workflow(color=7)})
    batch = (await anna.ask("POST", "/genflow/v1/batches", data=line)).json["id"]
    for method, path in (("GET", ""), ("GET", "/rows"), ("POST", "/pause"), ("POST", "/resume")):
        assert (await ben.ask(method, f"/genflow/v1/batches/{batch}{path}")).status == 404, path
    assert (await ben.ask("GET", "/genflow/v1/batches")).json["batches"] == []
    assert len((await anna.ask("GET", "/genflow/v1/batches")).json["batches"]) == 1
    taken = await ben.ask("POST", "/genflow/v1/batches", data=line)
    assert taken.status == 409, "another's id is neither told of nor taken over"
    assert (await anna.ask("GET", f"{JOBS}/{job}")).json["status"] == "queued"

    await bench.rows(
        "update genflow.jobs set state = 11, ended_at = genflow.clock(), error = %s where id = %s returning 1",
        json.dumps({"code": "x", "message": "m", "class": "permanent"}), UUID(job),
    )  # fmt: skip
    letters = "/genflow/v1/dead-letters"
    assert (await ben.ask("GET", letters)).json["dead_letters"] == []
    assert (await ben.ask("GET", f"{letters}?group=reason")).json["groups"] == []
    for method, path in (("GET", job), ("GET", job[:8]), ("DELETE", job), ("POST", f"{job}/requeue")):
        assert (await ben.ask(method, f"{letters}/{path}")).status == 404, path
    for path in ("requeue", "purge"):
        answer = await ben.ask("POST", f"{letters}/{path}", json={"all": True})
        assert answer.json.get("requeued", answer.json.get("purged")) == []
    assert len((await anna.ask("GET", letters)).json["dead_letters"]) == 1

    await bench.rows("delete from genflow.jobs returning 1")
    await bench.rows("delete from genflow.job_keys returning 1")
    assert (await ben.ask("POST", "/genflow/v1/batches?name=mine", data=line)).status == 409
    assert (await anna.ask("GET", f"/genflow/v1/batches/{batch}")).json["name"] == "batch"


async def test_the_settings_decide_who_may_ask(bench: Bench, store: LocalStore, keys: Accounts) -> None:
    async with serving(bench.queue, store, Settings(auth="keys"), bench.pool) as closed:
        assert (await Holder(closed, None).submit()).status == 401, "also before there is a key"
    await made(keys, "app")
    async with serving(bench.queue, store, Settings(auth="open"), bench.pool) as opened:
        assert (await Holder(opened, None).submit()).status == 201
