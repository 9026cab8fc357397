"""Every answer about a job is, key by key, what the published schemas of the Comfy API v2 say, whatever its state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.jobs import Status
from genflow.queue.records import LiveNews
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.api.test_api_jobs import GRAPH, JOBS, finished, know, submitted
from tests.queue.conftest import Bench
from tests.support.api import Client, serving
from tests.support.contract import holds

SHOWN_AS = {
    "queued": "state = 2",
    "running": "state = 3, executing_at = genflow.clock()",
    "canceling": "state = 3, executing_at = genflow.clock(), cancel_at = genflow.clock()",
    "canceled": "state = 12, cancel_at = genflow.clock(), ended_at = genflow.clock()",
    "expired": "state = 13, ended_at = genflow.clock()",
    "failed": """state = 11, executing_at = genflow.clock(), ended_at = genflow.clock(), error = '{"code": "x",
        "message": "m", "node_id": "3", "class_type": "K", "traceback": ["secret"]}'""",
    "succeeded": "state = 10, executing_at = genflow.clock(), ended_at = genflow.clock()",
}


async def test_a_job_holds_the_contract_in_every_state(api: Client, bench: Bench) -> None:
    assert set(SHOWN_AS) == {status.value for status in Status}
    job = await bench.enqueue()
    for status, change in SHOWN_AS.items():
        await bench.rows(f"update genflow.jobs set {change} where id = %s returning 1", job)  # noqa: S608
        shown = holds("Job", (await api.get(f"{JOBS}/{job}")).json)
        assert shown["status"] == status
        assert set(shown["metrics"]) == {"queue_ms", "execution_ms"}
        await bench.rows(
            "update genflow.jobs set executing_at = null, cancel_at = null, ended_at = null, error = null, state = 2"
            " where id = %s returning 1",
            job,
        )


async def test_a_running_and_a_finished_job_hold_it_with_progress_and_outputs(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    hold = await submitted(bench, job)
    await api.get(f"{JOBS}/{job}")
    ledger = await bench.worker("w1")
    progress = {"value": 1.7, "nodes_done": 1, "nodes_total": 3, "current_node": "3"}
    await ledger.live_progress({hold.job_id: LiveNews(hold.token, progress)})
    shown = holds("Job", (await api.get(f"{JOBS}/{job}")).json)
    assert (shown["progress"]["value"], shown["progress"]["nodes_done"]) == (1.0, 1)
    assert await bench.queue.cancel(job)
    done, _ = await finished(bench)
    shown = holds("Job", (await api.get(f"{JOBS}/{done}")).json)
    assert [output["type"] for output in shown["outputs"]] == ["image"]
    assert all(isinstance(value, int) for value in shown["metrics"].values())
    holds("Asset", (await api.get(f"/api/v2/assets/{shown['outputs'][0]['id']}")).json)


async def test_every_refusal_holds_the_envelope(api: Client, bench: Bench) -> None:
    await know(bench, {"SaveImage": {"output_node": True}})
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", JOBS, {"json": {"workflow": GRAPH}}), ("POST", JOBS, {"data": b"{"}), ("GET", f"{JOBS}/nope", {}),
        ("GET", f"{JOBS}/{uuid4()}/workflow", {}), ("POST", f"{JOBS}/{uuid4()}/cancel", {}), ("PUT", JOBS, {}),
        ("GET", f"{JOBS}?limit=0", {}), ("GET", f"{JOBS}?cursor=x", {}), ("GET", "/api/v2/nothing", {}),
    ]  # fmt: skip
    for method, path, options in asked:
        answer = await api.ask(method, path, **options)
        assert 400 <= answer.status < 500
        holds("ErrorEnvelope", answer.json)


@pytest.mark.parametrize("public", [None, "https://gpu.example.org/comfy"])
async def test_links_are_absolute_behind_a_proxy_and_under_a_prefix(
    bench: Bench, store: LocalStore, public: str | None
) -> None:
    job, output = await finished(bench)
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "gpu.example.org", "X-Forwarded-Prefix": "/comfy"}
    async with serving(bench.queue, store, Settings(public_url=public), bench.pool) as client:
        shown = holds("Job", (await client.get(f"{JOBS}/{job}", headers=forwarded if public is None else {})).json)
    base = "https://gpu.example.org/comfy/api/v2"
    assert shown["urls"]["self"] == f"{base}/jobs/{job}"
    assert shown["outputs"][0]["url"].startswith(f"{base}/assets/{output}/content")


async def test_the_workflow_is_the_graph_that_runs_exact_and_without_secrets(api: Client, bench: Bench) -> None:
    _, photo = await finished(bench)
    reference = {"__type": "core/ASSET", "info": {"id": str(photo)}}
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": reference}, "_meta": {"title": "photo"}},
        "2": {"class_type": "KSampler", "inputs": {"seed": 2**64 - 1, "cfg": 6.5, "far": 10**30}},
    }
    sent = {"workflow": graph, "extra_data": {"api_key_comfy_org": "comfyui-SECRET"}}
    made = await api.post(JOBS, json=sent)
    assert made.status == 201, made.json
    answer = await api.get(f"{JOBS}/{made.json['id']}/workflow")
    told = holds("JobWorkflowResponse", answer.json)
    name = f"genflow/{made.json['id']}/{(b'h' * 16).hex()}.png"
    assert told["format"] == "api"
    assert told["workflow"] == graph | {"1": graph["1"] | {"inputs": {"image": name}}}
    assert b"SECRET" not in answer.body + (await api.get(f"{JOBS}/{made.json['id']}")).body
    await bench.rows("update genflow.assets set blob_hash = null where id = %s returning 1", photo)
    assert (await api.get(f"{JOBS}/{made.json['id']}/workflow")).json["workflow"] == graph, "as it was sent"
    await bench.rows("update genflow.jobs set tenant_id = 2 where id = %s returning 1", UUID(made.json["id"]))
    assert (await api.get(f"{JOBS}/{made.json['id']}/workflow")).code == "not_found"


async def test_the_contracts_health_says_how_many_servers_are_up(api: Client, bench: Bench) -> None:
    await bench.server()
    answer = await api.get("/api/v2/health")
    assert answer.json == {"status": "healthy", "upstream": "0 of 1 ComfyUI servers are up"}


# --- replay by setting ---


@pytest.fixture
async def replaying(bench: Bench, store: LocalStore) -> AsyncIterator[Client]:
    async with serving(bench.queue, store, Settings(idempotency="replay"), bench.pool) as client:
        yield client


async def test_by_setting_the_same_request_is_answered_with_the_same_job(replaying: Client, bench: Bench) -> None:
    async def send(key: str, body: dict[str, Any]) -> Any:
        return await replaying.post(JOBS, json=body, headers={"Idempotency-Key": key})

    first = await send("order-7", {"workflow": GRAPH, "extra_data": {"api_key_comfy_org": "one"}})
    assert (first.status, "Idempotency-Replayed" in first.headers) == (201, False)
    await know(bench, {"K": {}})  # a workflow that was taken is not judged anew
    again = await send("order-7", {"workflow": GRAPH, "extra_data": {"api_key_comfy_org": "other"}})
    assert (again.status, again.headers["Idempotency-Replayed"]) == (201, "true")
    assert holds("Job", again.json)["id"] == first.json["id"]
    assert again.headers["Location"] == first.headers["Location"]
    await bench.rows("update genflow.servers set capabilities_hash = null returning 1")
    for other in ({"workflow": GRAPH, "metadata": {"a": "b"}}, {"workflow": GRAPH | {"2": GRAPH["1"]}}):
        refused = await send("order-7", other)
        assert (refused.status, refused.code) == (422, "idempotency_key_reuse")
        assert refused.details["job_id"] == first.json["id"]
    await bench.rows("update genflow.job_keys set expires_at = genflow.clock() - interval '1 s' returning 1")
    anew = await send("order-7", {"workflow": GRAPH})
    assert (anew.status, "Idempotency-Replayed" in anew.headers) == (201, False)
    assert anew.json["id"] != first.json["id"]
    assert len(await bench.rows("select 1 from genflow.jobs")) == 2


async def test_by_setting_a_portrait_with_a_drawn_seed_is_the_same_request(replaying: Client, bench: Bench) -> None:
    _, photo = await finished(bench)
    bodies = [{"photo_asset": str(photo), "prompt": "x"} | more for more in ({}, {}, {"seed": 7})]
    answers = [
        await replaying.post("/genflow/v1/portraits", json=body, headers={"Idempotency-Key": "k"}) for body in bodies
    ]
    assert [answer.status for answer in answers] == [201, 201, 422], [answer.json for answer in answers]
    assert answers[0].json["id"] == answers[1].json["id"]
    assert json.loads(answers[1].body)["seed"] == answers[0].json["seed"]
