"""Whatever goes wrong, a client reads one envelope; an outage of the database that passes is no error at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from genflow.postgres.pool import open_pool
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.storage.store import storage_unavailable
from tests.queue.api.test_api_jobs import GRAPH, JOBS
from tests.queue.conftest import Bench
from tests.support.api import Client, serving
from tests.support.relay import relayed


async def test_what_does_not_exist_and_what_is_not_possible_say_so(api: Client) -> None:
    answer = await api.get("/api/v2/nothing?x=1")
    assert (answer.status, answer.code) == (404, "not_found")
    assert "/api/v2/nothing" in answer.json["error"]["message"]
    answer = await api.ask("DELETE", JOBS)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["Allow"] in ("POST", "GET", "GET, POST", "POST, GET")
    assert (await api.ask("HEAD", "/api/v2/assets/by-hash/blake3:00")).status == 404


async def test_the_unexpected_is_a_plain_500_that_the_log_can_explain(
    api: Client, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail /srv/genflow")

    monkeypatch.setattr(bench.queue, "page", broken)
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        answer = await api.get("/genflow/v1/jobs")
    assert (answer.status, answer.code) == (500, "upstream_error")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    request_id = answer.headers["X-Comfy-Request-Id"]
    assert request_id in answer.json["error"]["message"]
    [line] = [entry for entry in logs if entry["event"] == "request_failed"]
    assert line["request_id"] == request_id
    assert "secret detail" in str(line["exc_info"])
    assert (await api.get("/healthz")).status == 200


async def test_an_answer_that_breaks_off_is_seen_to_be_broken(
    api: Client, bench: Bench, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000

    blob = await store.put(chunks())
    asset = await bench.queue.files.add(blob, name="a.png", type="image", content_type="image/png")

    async def half(*_: Any) -> AsyncIterator[bytes]:
        yield b"x" * 1_000_000
        raise RuntimeError("the disk broke")

    monkeypatch.setattr(store, "read", half)
    with pytest.raises(Exception, match=r"(?i)payload|closed|disconnected"):
        await api.get(f"/api/v2/assets/{asset}/content")

    async def away(*_: Any) -> AsyncIterator[bytes]:
        raise storage_unavailable("read", "Input/output error")
        yield b""

    monkeypatch.setattr(store, "read", away)
    answer = await api.get(f"/api/v2/assets/{asset}/content")
    assert (answer.status, answer.code) == (503, "storage_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


async def test_a_page_from_elsewhere_can_not_act_through_a_browser(
    api: Client, bench: Bench, store: LocalStore, settings: Settings
) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        answer = await api.post(JOBS, json={"workflow": GRAPH}, headers=headers)
        assert (answer.status, answer.code) == (403, "forbidden_origin"), headers
    assert await bench.rows("select 1 from genflow.jobs") == []
    own = {"Origin": api.url, "Sec-Fetch-Site": "same-origin"}
    assert (await api.post(JOBS, json={"workflow": GRAPH}, headers=own)).status == 201
    behind = settings.model_copy(update={"public_url": "https://pics.example/flow"})
    async with serving(bench.queue, store, behind, bench.pool) as client:
        own = {"Origin": "https://pics.example", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post(JOBS, json={"workflow": GRAPH}, headers=own)).status == 201


async def test_a_page_of_a_listed_origin_may_act_and_read_what_it_needs(
    bench: Bench, store: LocalStore, settings: Settings
) -> None:
    app, other = "https://app.example.com", "https://evil.example"
    listed = Settings.model_validate(settings.model_dump() | {"cors_origins": f"{app}, http://localhost:3000"})
    async with serving(bench.queue, store, listed, bench.pool) as client:
        asked = {
            "Origin": app,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        async with client.session.options(f"{client.url}{JOBS}", headers=asked) as preflight:
            assert (preflight.status, preflight.headers["Access-Control-Allow-Origin"]) == (200, app)
        page = {"Origin": app, "Sec-Fetch-Site": "cross-site"}
        made = await client.post(JOBS, json={"workflow": GRAPH}, headers=page)
        assert (made.status, made.headers["Access-Control-Allow-Origin"]) == (201, app)
        assert {"Location", "Retry-After", "X-Comfy-Request-Id"} <= {
            name.strip() for name in made.headers["Access-Control-Expose-Headers"].split(",")
        }
        refused = await client.post(JOBS, json={}, headers=page)
        assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (422, app), "refusals are read too"
        foreign = await client.post(JOBS, json={"workflow": GRAPH}, headers={"Origin": other})
        assert (foreign.status, foreign.code) == (403, "forbidden_origin")
        assert "Access-Control-Allow-Origin" not in foreign.headers
    for wrong in ("*", "app.example.com", "https://app.example.com/path", "https://a.example,nope"):
        with pytest.raises(ValueError, match="an origin looks like"):
            Settings.model_validate({"cors_origins": wrong})


async def test_a_short_outage_of_the_database_is_waited_out(database: str, store: LocalStore) -> None:
    async with relayed(database) as (conninfo, relay), await open_pool(conninfo, 1, 4) as pool:
        queue = Queue(pool, queue_limit=10, retention_s=60.0)
        async with serving(queue, store, Settings(), pool) as api:
            job = (await api.post(JOBS, json={"workflow": GRAPH})).json["id"]
            relay.cut()
            waiting = [
                asyncio.create_task(api.post(JOBS, json={"workflow": GRAPH}, headers={"Idempotency-Key": "k"})),
                asyncio.create_task(api.get(f"{JOBS}/{job}")),
                asyncio.create_task(api.post(f"{JOBS}/{job}/cancel")),
            ]
            await relay.refused.wait()
            assert not any(task.done() for task in waiting)
            assert (await api.get("/healthz")).status == 200
            relay.mend()
            answers = [await task for task in waiting]
            assert [answer.status for answer in answers] == [201, 200, 200]
            rows = await queue.page(limit=10)
            assert {str(row["id"]) for row in rows} == {job, answers[0].json["id"]}


async def test_a_commit_whose_answer_was_lost_makes_one_job(database: str, store: LocalStore) -> None:
    async with relayed(database) as (conninfo, relay), await open_pool(conninfo, 1, 4) as pool:
        queue = Queue(pool, queue_limit=10, retention_s=60.0)
        async with serving(queue, store, Settings(), pool) as api:
            for headers in ({}, {"Idempotency-Key": "k"}):
                relay.lose_the_answer_to(b"new_job")
                answer = await api.post(JOBS, json={"workflow": GRAPH}, headers=headers)
                assert relay.lost.is_set()
                assert answer.status == 201
                assert str((await queue.page(limit=10))[0]["id"]) == answer.json["id"]
            assert len(await queue.page(limit=10)) == 2


async def test_a_long_outage_of_the_database_is_a_503_that_says_when_to_come_back(
    database: str, store: LocalStore
) -> None:
    async with relayed(database) as (conninfo, relay), await open_pool(conninfo, 1, 4) as pool:
        queue = Queue(pool, queue_limit=10, retention_s=60.0, patience_s=0.1)
        async with serving(queue, store, Settings(), pool) as api:
            assert (await api.get("/readyz")).json["checks"] == {"database": "ok", "schema": "ok", "storage": "ok"}
            relay.cut()
            ready, answer = await asyncio.gather(api.get("/readyz"), api.post(JOBS, json={"workflow": GRAPH}))
            assert (answer.status, answer.code) == (503, "database_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
            assert (ready.status, ready.code) == (503, "not_ready")
            assert ready.details["checks"]["storage"] == "ok"
            assert ready.details["checks"]["database"] != "ok"
            assert ready.details["checks"]["schema"] != "ok"
            relay.mend()


async def test_readiness_is_about_what_the_api_needs(api: Client, bench: Bench, tmp_path: Path) -> None:
    assert (await api.get("/healthz")).json == {"status": "ok"}
    ready = await api.get("/readyz")
    assert (ready.status, ready.json["status"]) == (200, "ready")
    await bench.rows(
        "insert into genflow.schema_migrations (version, name, sha256)"
        " select max(version) + 1, 'future', 'x' from genflow.schema_migrations returning 1"
    )
    answer = await api.get("/readyz")
    assert (answer.status, answer.code) == (503, "not_ready")
    assert "ok" not in answer.details["checks"]["schema"]
    assert answer.details["checks"]["database"] == "ok"
