"""Jobs over HTTP: what is accepted is kept as it was sent, what is not is refused by the contract's codes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr

from genflow.failures import failure
from genflow.jobs import State, SubmitState
from genflow.protocol import HistoryEntry
from genflow.queue import Queue
from genflow.queue.records import LiveNews, StoredOutput
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Client, serving

JOBS = "/api/v2/jobs"
GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 7}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "out"}},
}
# Every key that the contract requires of a Job, and whether it may be null.
JOB_KEYS = {
    "id": False, "status": False, "created_at": False, "started_at": True, "completed_at": True, "expires_at": False,
    "queue_position": True, "progress": True, "outputs": False, "error": True, "urls": False,
}  # fmt: skip
OUTPUT_KEYS = {"node_id", "name", "type", "content_type", "size_bytes", "id", "hash", "url", "url_expires_at"}


def a_job(shown: dict[str, Any]) -> dict[str, Any]:
    """Check a Job against the contract, key by key."""
    for key, nullable in JOB_KEYS.items():
        assert key in shown
        assert nullable or shown[key] is not None, key
    assert str(UUID(shown["id"])) == shown["id"]
    assert shown["status"] in ("queued", "running", "succeeded", "canceling", "canceled", "failed", "expired")
    for key in ("created_at", "started_at", "completed_at", "expires_at"):
        assert shown[key] is None or datetime.fromisoformat(shown[key]).tzinfo is not None
    for name, link in shown["urls"].items():
        assert name in ("self", "events", "cancel")
        assert link.startswith("http://")
        assert f"/api/v2/jobs/{shown['id']}" in link
    for output in shown["outputs"]:
        assert output.keys() >= OUTPUT_KEYS
        assert output["url"].startswith("http://")
        assert output["type"] in ("image", "video", "audio", "text", "file", "latent")
        assert datetime.fromisoformat(output["url_expires_at"]).tzinfo is not None
    return shown


async def stored(bench: Bench, job_id: str) -> dict[str, Any]:
    [row] = await bench.rows("select * from genflow.job_specs where job_id = %s", job_id)
    return row


async def count(bench: Bench, table: str) -> int:
    [row] = await bench.rows("select count(*) as n from genflow." + table)  # noqa: S608 - one of our own
    number: int = row["n"]
    return number


async def test_a_201_is_a_job_of_the_contract(api: Client, bench: Bench) -> None:
    answer = await api.post(JOBS, json={"workflow": GRAPH, "metadata": {"batch": "7"}})
    assert answer.status == 201
    job = a_job(answer.json)
    assert answer.headers["Location"] == job["urls"]["self"]
    assert (job["status"], job["queue_position"], job["outputs"]) == ("queued", 1, [])
    assert job["metadata"] == {"batch": "7"}
    assert job["metrics"] == {"queue_ms": None, "execution_ms": None}
    assert "seed" not in job
    again = await api.get(f"{JOBS}/{job['id']}")
    assert (again.status, again.json) == (200, job)
    assert (await api.get(job["urls"]["self"].removeprefix(api.url))).json == job
    assert (await bench.row(UUID(job["id"])))["state"] == State.QUEUED


async def test_the_workflow_is_kept_as_the_very_text_that_was_sent(api: Client, bench: Bench) -> None:
    text = (
        '{ "3":{"class_type":"K" , "inputs":{"seed":18446744073709551615,"cfg":6.50,'
        '"big":123456789012345678901234567890,"tiny":1E-7,"text":"\\u00e9é\\ud83d\\ude00","color":0.1}} }'
    )
    answer = await api.post(
        JOBS,
        data=f'{{"metadata":null,\n"workflow": {text} , "extra_data":{{}} }}'.encode(),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert answer.status == 201
    assert (await stored(bench, answer.json["id"]))["workflow"] == text


REFUSED = [
    ("{", 400, "invalid_request"),
    ("", 400, "invalid_request"),
    ("[]", 400, "invalid_request"),
    ("null", 400, "invalid_request"),
    ('{"workflow": {}, "workflow": {}}', 400, "invalid_request"),
    ('{"workflow": {}, "metadata": NaN}', 400, "invalid_request"),
    ("{}", 422, "invalid_workflow"),
    ('{"prompt": {}}', 422, "invalid_workflow"),
    ('{"workflow": null}', 422, "invalid_workflow"),
    ('{"workflow": {}}', 422, "invalid_workflow"),
    ('{"workflow": []}', 422, "invalid_workflow"),
    ('{"workflow": "{}"}', 422, "invalid_workflow"),
    ('{"workflow": {"1": {"class_type": "K", "inputs": {"cfg": NaN}}}}', 422, "invalid_workflow"),
    ('{"workflow": {"1": {"class_type": "K", "inputs": {"cfg": Infinity}}}}', 422, "invalid_workflow"),
    ('{"workflow": ' + "[" * 100_000, 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH | {"9": {"class_type": "S", "inputs": {"filename_prefix": "../x"}}}}), 422,
     "invalid_workflow"),
    ('{"workflow": {"nodes": [], "links": [], "last_node_id": 1}}', 422, "workflow_format_ui"),
    (json.dumps({"workflow": GRAPH, "webhook_url": "http://127.0.0.1/x"}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "inputs": None}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "extra_data": {"foo": 1}}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "extra_data": {"extra_pnginfo": None}}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "extra_data": {"api_key_comfy_org": 5}}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "extra_data": []}), 422, "invalid_workflow"),
    (json.dumps({"workflow": GRAPH, "metadata": []}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {"a": 1}}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {"": "x"}}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {"a": "\0"}}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {"a": "\ud800"}}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {"a": "x" * 1_025}}), 422, "metadata_invalid"),
    (json.dumps({"workflow": GRAPH, "metadata": {str(n): "x" for n in range(17)}}), 422, "metadata_invalid"),
]  # fmt: skip


async def test_what_is_refused_leaves_nothing_behind(api: Client, bench: Bench) -> None:
    key = {"Idempotency-Key": "once", "Content-Type": "application/json"}
    for body, status, code in REFUSED:
        answer = await api.post(JOBS, data=body.encode(), headers=key)
        assert (answer.status, answer.code) == (status, code), body[:200]
    assert await count(bench, "jobs") == await count(bench, "job_keys") == 0
    assert (await api.post(JOBS, json={"workflow": GRAPH}, headers=key)).status == 201, "the key is still free"


async def test_sixteen_labels_are_kept_and_unknown_fields_are_no_fault(api: Client, bench: Bench) -> None:
    metadata = {f"k{n}" + "ü" * 200: "v" * 1_024 for n in range(16)}
    body = {"workflow": GRAPH, "metadata": metadata, "client_id": {"a": 1}, "something_new": [1]}
    answer = await api.post(JOBS, json=body)
    assert answer.status == 201
    assert answer.json["metadata"] == metadata
    assert "client_id" not in (await stored(bench, answer.json["id"]))["workflow"]


async def test_a_body_of_another_kind_is_refused(api: Client) -> None:
    answer = await api.post(JOBS, data={"workflow": json.dumps(GRAPH)})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert answer.details["got"] == "application/x-www-form-urlencoded"


async def test_once_the_servers_are_known_their_classes_decide(api: Client, bench: Bench) -> None:
    unknown = {"workflow": {"1": {"class_type": "NoSuchNode", "inputs": {}}}}
    dead_end = {"workflow": {"1": GRAPH["1"]}}
    assert (await api.post(JOBS, json=unknown)).status == 201
    assert (await api.post(JOBS, json=dead_end)).status == 201
    await know(bench, {"EmptyImage": {"output_node": False}, "SaveImage": {"output_node": True}})
    answer = await api.post(JOBS, json=unknown)
    assert (answer.status, answer.code) == (422, "invalid_workflow")
    assert answer.details["node_errors"]["1"][0]["class_type"] == "NoSuchNode"
    answer = await api.post(JOBS, json=dead_end)
    assert (answer.status, answer.code, answer.details["reason"]) == (422, "invalid_workflow", "no_output_node")
    assert (await api.post(JOBS, json={"workflow": GRAPH})).status == 201


async def know(bench: Bench, object_info: dict[str, Any]) -> None:
    """Have a probed server say which node classes it has."""
    server = await bench.server()
    await bench.writer.write("save_object_info", {"hash": b"info", "body": json.dumps(object_info)})
    await bench.rows("update genflow.servers set capabilities_hash = %s where id = %s returning 1", b"info", server)


# --- idempotency: single use ---


async def test_a_key_makes_one_job_and_leads_to_it(api: Client, bench: Bench) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = await api.post(JOBS, json={"workflow": GRAPH}, headers=key)
    assert first.status == 201
    for body in ({"workflow": GRAPH}, {"workflow": GRAPH, "metadata": {"other": "body"}}):
        again = await api.post(JOBS, json=body, headers=key)
        assert (again.status, again.code) == (422, "idempotency_key_reuse")
        assert again.details["job_id"] == first.json["id"]
    assert await count(bench, "jobs") == 1


async def test_of_concurrent_submits_with_one_key_one_wins(api: Client, bench: Bench) -> None:
    key = {"Idempotency-Key": "the same"}
    answers = await asyncio.gather(*(api.post(JOBS, json={"workflow": GRAPH}, headers=key) for _ in range(12)))
    assert sorted(answer.status for answer in answers) == [201] + [422] * 11
    [won] = [answer.json["id"] for answer in answers if answer.status == 201]
    assert {answer.details["job_id"] for answer in answers if answer.status == 422} == {won}
    assert await count(bench, "jobs") == 1


async def test_a_key_that_is_none_is_refused(api: Client) -> None:
    for key in ("", "k" * 256, "schlüssel", "a\tb"):
        answer = await api.post(JOBS, json={"workflow": GRAPH}, headers={"Idempotency-Key": key})
        assert (answer.status, answer.code) == (400, "invalid_request"), key
        assert answer.details["field"] == "Idempotency-Key"


async def test_a_key_of_255_printable_characters_is_one(api: Client) -> None:
    key = {"Idempotency-Key": ("~ !" * 85)[:254] + "x"}
    assert (await api.post(JOBS, json={"workflow": GRAPH}, headers=key)).status == 201


# --- bounds ---


async def test_a_full_queue_says_when_to_come_back_and_keeps_what_it_has(
    bench: Bench, store: LocalStore, settings: Settings
) -> None:
    queue = Queue(bench.pool, queue_limit=2, retention_s=60.0)
    key = {"Idempotency-Key": "third"}
    async with serving(queue, store, settings, bench.pool) as api:
        accepted = [(await api.post(JOBS, json={"workflow": GRAPH})).json["id"] for _ in range(2)]
        answer = await api.post(JOBS, json={"workflow": GRAPH}, headers=key)
        assert (answer.status, answer.code) == (429, "queue_full")
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.details["limit"] == 2
        assert (await api.post(f"{JOBS}/{accepted[0]}/cancel")).json["status"] == "canceled"
        assert (await api.post(JOBS, json={"workflow": GRAPH}, headers=key)).status == 201
        assert (await api.get(f"{JOBS}/{accepted[1]}")).json["status"] == "queued"


async def test_a_workflow_over_the_limit_is_refused_and_one_at_it_is_kept(bench: Bench, store: LocalStore) -> None:
    text = json.dumps(GRAPH)
    fits = Settings(max_workflow_bytes=2_000)
    async with serving(bench.queue, store, fits, bench.pool) as api:
        padded = text[:-1] + " " * (2_000 - len(text)) + "}"
        kept = await api.post(JOBS, data=f'{{"workflow": {padded}}}', headers={"Content-Type": "application/json"})
        assert kept.status == 201
        assert (await stored(bench, kept.json["id"]))["workflow"] == padded
        over = text[:-1] + " " * (2_001 - len(text)) + "}"
        answer = await api.post(JOBS, data=f'{{"workflow": {over}}}', headers={"Content-Type": "application/json"})
        assert (answer.status, answer.code) == (413, "payload_too_large")
        assert (answer.details["limit"], answer.details["got"]) == (2_000, 2_001)


async def test_a_body_far_over_the_limit_is_refused_before_it_was_sent(api: Client, bench: Bench) -> None:
    answered = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"workflow": {"1": {"class_type": "K", "inputs": {"text": "'
        for _ in range(5 * 1024):
            yield b"x" * 1024
        await answered.wait()

    answer = await api.post(JOBS, data=endless(), headers={"Content-Type": "application/json"})
    answered.set()
    assert (answer.status, answer.code) == (413, "payload_too_large")
    declared = await api.post(
        JOBS, data=b"{}", headers={"Content-Type": "application/json", "Content-Length": str(10**9)}, expect100=True
    )
    assert (declared.status, declared.code) == (413, "payload_too_large")
    assert await count(bench, "jobs") == 0


# --- assets in a workflow ---


def with_asset(reference: Any) -> dict[str, Any]:
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": reference}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "out"}},
    }


def reference(asset_id: object, **hints: str) -> dict[str, Any]:
    return {"__type": "core/ASSET", "info": {"id": str(asset_id), **hints}}


async def test_an_asset_that_is_not_there_is_named(api: Client) -> None:
    malformed: list[dict[str, Any]] = [{}, {"info": {}}, {"info": "x"}]
    for broken in (reference(uuid4()), reference("nope"), *({"__type": "core/ASSET"} | rest for rest in malformed)):
        answer = await api.post(JOBS, json={"workflow": with_asset(broken)})
        assert (answer.status, answer.code) == (422, "missing_asset"), broken
        nested = GRAPH | {"9": GRAPH["9"] | {"_meta": {"x": [broken]}}}
        assert (await api.post(JOBS, json={"workflow": nested})).code == "missing_asset", broken


async def test_an_output_is_an_asset_that_a_next_job_may_use(api: Client, bench: Bench) -> None:
    _, output_id = await finished(bench)
    answer = await api.post(JOBS, json={"workflow": with_asset(reference(output_id))})
    assert answer.status == 201
    rows = await bench.rows("select asset_id from genflow.job_assets where job_id = %s", answer.json["id"])
    assert [row["asset_id"] for row in rows] == [output_id]
    rescued = reference(uuid4(), hash="blake3:" + (b"h" * 32).hex())
    assert (await api.post(JOBS, json={"workflow": with_asset(rescued)})).code == "missing_asset"


# --- a job's way, as clients see it ---

ENTRY = HistoryEntry("success", None, {"9": {"images": []}}, None, 1_000, 3_500, {})


async def submitted(bench: Bench, job: UUID) -> Any:
    """A job that a worker holds and a server is running; its hold."""
    server = await bench.server()
    [hold] = await bench.claim("w1", server)
    assert hold.job_id == job
    ledger = await bench.worker("w1")
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.receipt(hold, 1, number=0.0, client_id="c")
    await ledger.running(hold, 1, deadline_s=60)
    return hold


async def finished(bench: Bench) -> tuple[UUID, UUID]:
    """A succeeded job and its only output."""
    job = await bench.enqueue()
    hold = await submitted(bench, job)
    ledger = await bench.worker("w1")
    await ledger.run_ended(hold, 1, ENTRY)
    output = StoredOutput(uuid4(), b"h" * 32, b"s" * 32, 12, "9", "images", 0, "ä b.png", "image", "image/png")
    await ledger.finish(hold, [output])
    return job, output.id


async def test_a_running_job_shows_its_progress_and_its_cancel(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    assert (await api.get(f"{JOBS}/{job}")).json["status"] == "queued"
    hold = await submitted(bench, job)
    shown = a_job((await api.get(f"{JOBS}/{job}")).json)
    assert (shown["status"], shown["progress"], shown["queue_position"]) == ("running", None, None)
    assert shown["started_at"] is not None
    ledger = await bench.worker("w1")
    progress = {"value": 1.0000001, "nodes_done": 2, "nodes_total": 3, "current_node": "9"}
    await ledger.live_progress({job: LiveNews(hold.token, progress)})
    assert (await api.get(f"{JOBS}/{job}")).json["progress"] == {
        "value": 1.0, "nodes_done": 2, "nodes_total": 3, "current_node": "9", "current_node_class": None,
        "step": None, "steps": None, "message": None,
    }  # fmt: skip
    for _ in range(2):
        answer = await api.post(f"{JOBS}/{job}/cancel")
        assert (answer.status, a_job(answer.json)["status"]) == (200, "canceling")
    await ledger.end_attempt(hold, state=State.CANCELED, no=1, submit_state=SubmitState.ENDED)
    assert a_job((await api.get(f"{JOBS}/{job}")).json)["status"] == "canceled"


async def test_a_finished_job_shows_its_outputs_and_stays_as_it_is(api: Client, bench: Bench) -> None:
    job, output_id = await finished(bench)
    shown = a_job((await api.get(f"{JOBS}/{job}")).json)
    assert (shown["status"], shown["error"], shown["progress"]) == ("succeeded", None, None)
    assert shown["created_at"] <= shown["started_at"] <= shown["completed_at"] < shown["expires_at"]
    assert shown["metrics"]["execution_ms"] == 2_500
    [output] = shown["outputs"]
    assert output["id"] == str(output_id)
    assert (output["node_id"], output["name"], output["size_bytes"]) == ("9", "ä b.png", 12)
    assert output["hash"] == "blake3:" + (b"h" * 32).hex()
    canceled = await api.post(f"{JOBS}/{job}/cancel")
    assert (canceled.status, canceled.json) == (200, shown)


async def test_a_failed_job_says_why_and_nothing_of_the_servers_inside(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    hold = await submitted(bench, job)
    why = failure(
        "node_execution_error", "node 2 failed", node_id="2", node_class="ImageBlur", traceback=["/srv/comfy/secret.py"]
    )
    ledger = await bench.worker("w1")
    await ledger.end_attempt(hold, state=State.FAILED, no=1, submit_state=SubmitState.ENDED, failure=why)
    answer = await api.get(f"{JOBS}/{job}")
    assert a_job(answer.json)["status"] == "failed"
    assert answer.json["error"] == {
        "code": "node_execution_error", "message": "node 2 failed", "node_id": "2", "class_type": "ImageBlur",
        "traceback": None,
    }  # fmt: skip
    assert b"secret.py" not in answer.body
    story = await api.get(f"/genflow/v1/jobs/{job}")
    assert story.json["error"]["code"] == "node_execution_error"
    assert b"secret.py" not in story.body


async def test_a_queued_job_is_canceled_at_once(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    for _ in range(2):
        assert a_job((await api.post(f"{JOBS}/{job}/cancel")).json)["status"] == "canceled"
    assert await bench.claim("w1", await bench.server()) == []


async def test_an_unknown_job_is_404(api: Client, bench: Bench) -> None:
    known = str(await bench.enqueue())
    for job_id in (str(uuid4()), "nope", known.upper(), known.replace("-", ""), "%00", "..%2f", "ä"):
        for method, path in (
            ("GET", f"{JOBS}/{job_id}"),
            ("GET", f"{JOBS}/{job_id}/events"),
            ("POST", f"{JOBS}/{job_id}/cancel"),
            ("GET", f"/genflow/v1/jobs/{job_id}"),
        ):
            answer = await api.ask(method, path)
            assert (answer.status, answer.code) == (404, "not_found"), path


async def test_a_credential_is_kept_sealed_for_the_worker_until_the_jobs_end(
    bench: Bench, store: LocalStore, settings: Settings
) -> None:
    key = base64.b64encode(bytes(32)).decode()
    sealing = settings.model_copy(update={"sealing_key": SecretStr(key)})
    secret = {"api_key_comfy_org": "SECRET-OF-ANNA"}
    async with serving(bench.queue, store, sealing, bench.pool) as api:
        answer = await api.post(JOBS, json={"workflow": GRAPH, "extra_data": secret})
        assert answer.status == 201
        job = UUID(answer.json["id"])
        for path in (f"{JOBS}/{job}", f"{JOBS}/{job}/workflow", f"/genflow/v1/jobs/{job}", "/genflow/v1/jobs"):
            assert b"SECRET" not in (await api.get(path)).body
    tables = await bench.rows("select table_name as name from information_schema.tables where table_schema = 'genflow'")
    for table in tables:
        dumped = await bench.rows(f"select t::text as row from genflow.{table['name']} as t")  # noqa: S608 - our own
        text = "".join(row["row"] for row in dumped)
        assert "SECRET" not in text, table["name"]
        assert b"SECRET".hex() not in text, table["name"]
    [hold] = await bench.claim("w1", await bench.server())
    ledger = await bench.worker("w1")
    sealed = (await ledger.load(hold)).sealed
    assert sealed is not None
    assert sealing.sealer.open(job, sealed) == secret
    await ledger.end_attempt(hold, state=State.CANCELED, no=0, submit_state=SubmitState.WITHDRAWN)
    assert await bench.rows("select job_id from genflow.job_secrets") == [], "it goes with the job's end"


async def test_a_credential_is_dropped_where_it_can_not_be_sealed(api: Client, bench: Bench) -> None:
    answer = await api.post(JOBS, json={"workflow": GRAPH, "extra_data": {"api_key_comfy_org": "SECRET"}})
    assert answer.status == 201
    assert await bench.rows("select job_id from genflow.job_secrets") == []
