"""A jobs file through the API: all of its rows or none, the same file once, counted, paused, told row by row."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from genflow.failures import failure
from genflow.jobs import State
from genflow.queue import Hold
from genflow.settings import Settings
from tests.queue.conftest import ENTRY, Bench, output
from tests.support.api import Answer, Client, serving
from tests.support.cli import Terminal
from tests.support.service import small_workflow

PATH = "/genflow/v1/batches"
NDJSON = {"Content-Type": "application/x-ndjson"}


def a_row(color: int, job: UUID | None = None, **more: Any) -> dict[str, Any]:
    return {"id": str(job or uuid4()), "workflow": small_workflow(), "set": {"1.color": color}} | more


async def send(api: Client, *rows: Any, name: str = "night", retry_failed: bool = False) -> Answer:
    body = "\n".join(json.dumps(row) for row in rows)
    query = f"?name={name}" + ("&retry_failed=true" if retry_failed else "")
    return await api.post(PATH + query, data=body.encode(), headers=NDJSON)


async def live(bench: Bench) -> int:
    rows = await bench.rows("select count(*) as jobs from genflow.jobs")
    jobs: int = rows[0]["jobs"]
    return jobs


async def held(bench: Bench, server: int) -> tuple[Hold, int]:
    """The next job with its submit open; its hold and the submit's number."""
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.receipt(hold, intent.no, number=1.0, client_id=None)
    return hold, intent.no


async def succeed(bench: Bench, server: int) -> None:
    hold, no = await held(bench, server)
    ledger = await bench.worker("w1")
    await ledger.running(hold, no, deadline_s=60.0)
    await ledger.run_ended(hold, no, ENTRY)
    await ledger.finish(hold, [output()])


async def fail(bench: Bench, server: int) -> None:
    hold, no = await held(bench, server)
    told = failure("node_execution_error", "node 2 (X): bad", brief="execution_error, node 2 (X): bad")
    await (await bench.worker("w1")).end_attempt(hold, state=State.FAILED, no=no, failure=told, executed=True)


async def test_the_same_file_twice_is_one_batch_and_runs_nothing_twice(api: Client, bench: Bench) -> None:
    rows = [a_row(color) for color in range(5)]
    first = await send(api, *rows, rows[0])
    assert (first.status, first.json["rows"], first.json["queued"], first.json["state"]) == (201, 6, 6, "running")
    again = await send(api, *rows, rows[0])
    assert (again.json["id"], await live(bench)) == (first.json["id"], 5)
    more = await send(api, *rows, a_row(9), name="more")
    assert (more.json["rows"], await live(bench)) == (6, 6), "rows that are known join as they are"
    listed = (await api.get(PATH + "?limit=1")).json
    assert [batch["name"] for batch in listed["batches"]] == ["more"]
    older = (await api.get(PATH, params={"limit": "1", "cursor": listed["next_cursor"]})).json
    assert ([batch["name"] for batch in older["batches"]], older["next_cursor"]) == (["night"], None)


async def test_its_jobs_are_announced_to_the_workers(api: Client, database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("listen genflow")
        await send(api, a_row(1), a_row(2))
        assert [note.payload async for note in connection.notifies(timeout=10, stop_after=1)] == ["queued"]


async def test_nothing_of_a_bad_file_is_enqueued(api: Client, bench: Bench) -> None:
    known = a_row(1)
    await send(api, known)
    bad = await send(api, a_row(2), {"workflow": "a-file.json"}, a_row(3) | {"set": {"7.x": 1}})
    assert (bad.status, bad.code, [each["line"] for each in bad.details["lines"]]) == (422, "jobs_file_invalid", [2, 3])
    other = await send(api, a_row(4), known | {"set": {"1.color": 5}})
    assert (other.status, other.code, other.details) == (409, "job_id_reuse", {"lines": [2], "job_id": known["id"]})
    assert "line 2: the id " + known["id"] in other.json["error"]["message"]
    full = await send(api, *(a_row(color) for color in range(100)))
    assert (full.status, full.code, full.details) == (429, "queue_full", {"limit": 100, "got": 100})
    assert await live(bench) == 1


async def test_a_file_is_bounded(bench: Bench, store: Any) -> None:
    async with serving(bench.queue, store, Settings(max_batch_bytes=1_024), bench.pool) as api:
        answer = await send(api, a_row(1), a_row(2), a_row(3))
        assert (answer.status, answer.code, answer.details["limit"]) == (413, "payload_too_large", 1_024)


async def test_what_comes_of_each_row_can_be_read_meanwhile(api: Client, bench: Bench, tmp_path: Path) -> None:
    server = await bench.server()
    jobs = [uuid4() for _ in range(3)]
    batch = (await send(api, *(a_row(color, job) for color, job in enumerate(jobs)))).json["id"]
    await succeed(bench, server)
    await fail(bench, server)
    shown = (await api.get(f"{PATH}/{batch}")).json
    assert [shown[name] for name in ("rows", "succeeded", "failed", "queued", "running")] == [3, 1, 1, 1, 0]
    assert shown["rows_per_minute"] > 0
    first = (await api.get(f"{PATH}/{batch}/rows?limit=2")).json
    rest = (await api.get(f"{PATH}/{batch}/rows?limit=2&cursor={first['next_cursor']}")).json
    rows = first["rows"] + rest["rows"]
    assert [(row["line"], row["id"], row["status"], row["set"]) for row in rows] == [
        (line, str(job), status, {"1.color": line - 1})
        for line, job, status in zip((1, 2, 3), jobs, ("succeeded", "failed", "queued"), strict=True)
    ]
    assert rest["next_cursor"] is None

    table = await Terminal(tmp_path, api.url).run("results", batch)
    done, dead, waits = csv.DictReader(io.StringIO(table.out))
    blake3, sha256 = (b"h" * 32).hex(), (b"s" * 32).hex()
    assert (done["id"], done["job"], done["1.color"]) == (str(jobs[0]), str(jobs[0])[:8], "0")
    assert (done["status"], done["server"], done["attempts"]) == ("succeeded", "gpu0", "1")
    assert done["files"] == f"3-a.png:{sha256}:{blake3}"
    assert all(float(done[name]) >= 0 for name in ("queued_s", "job_s", "attempt_s"))
    assert (dead["status"], dead["reason"]) == ("failed", "execution_error, node 2 (X): bad")
    assert (waits["status"], waits["files"], waits["job_s"]) == ("queued", "", "")

    retried = await Terminal(tmp_path, api.url).run("batches", "retry", batch, "--json")
    assert ([each["requeued_from"] for each in retried.json["requeued"]], retried.status) == ([str(jobs[1])], 0)
    shown = (await api.get(f"{PATH}/{batch}")).json
    assert [shown[name] for name in ("rows", "succeeded", "failed", "queued")] == [3, 1, 0, 2]
    rows = (await api.get(f"{PATH}/{batch}/rows")).json["rows"]
    assert [row["status"] for row in rows] == ["succeeded", "queued", "queued"], "a row is as its newest job is"


async def test_a_paused_batch_is_claimed_from_no_more_until_it_goes_on(api: Client, bench: Bench) -> None:
    server = await bench.server(slots=64)
    others = await bench.enqueue()
    jobs = [uuid4() for _ in range(4)]
    batch = (await send(api, *(a_row(color, job) for color, job in enumerate(jobs)))).json["id"]
    assert [hold.job_id for hold in await bench.claim("w1", server, limit=2, slots=64)] == [others, jobs[0]]
    for _ in range(2):
        paused = (await api.post(f"{PATH}/{batch}/pause")).json
        assert (paused["state"], paused["queued"], paused["running"]) == ("paused", 3, 1)
    [retried] = [run for run in await bench.rows("select id from genflow.jobs where state = 3 and id = %s", jobs[0])]
    assert retried["id"] == jobs[0], "what runs goes on"
    await bench.rows("update genflow.jobs set state = 1, run_at = genflow.clock() where id = %s returning 1", jobs[0])
    await bench.sweeps.due()
    assert await bench.claim("w1", server, limit=9, slots=64) == [], "neither what waited nor what comes back"
    refused = await send(api, *(a_row(color, job) for color, job in enumerate(jobs)))
    assert (refused.status, refused.code) == (409, "batch_paused")
    assert (await api.post(f"{PATH}/{batch}/resume")).json["state"] == "running"
    assert [hold.job_id for hold in await bench.claim("w1", server, limit=9, slots=64)] == jobs, "each at its old place"


@pytest.mark.parametrize("path", ["", "/rows", "/pause", "/resume"])
async def test_an_unknown_batch_is_a_404(api: Client, path: str) -> None:
    method = "POST" if path in ("/pause", "/resume") else "GET"
    answer = await api.ask(method, f"{PATH}/{uuid4()}{path}")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_the_commands_speak_of_the_file_as_it_is(api: Client, bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(json.dumps(small_workflow(), indent=2))
    rows = [
        "",
        json.dumps({"workflow": "graph.json", "set": {"1.color": 1}}),
        "",
        json.dumps({"workflow": "graph.json"}),
    ]
    (tmp_path / "night.jsonl").write_text("\n".join(rows))
    terminal = Terminal(tmp_path, api.url)
    made = (await terminal.run("enqueue", "night.jsonl", "--json")).json
    assert (made["rows"], made["name"], await live(bench)) == (2, "night.jsonl", 2)
    assert (await terminal.run("enqueue", "night.jsonl")).out.startswith(f"batch {made['id']}: 2 rows")
    assert [row["line"] for row in (await api.get(f"{PATH}/{made['id']}/rows")).json["rows"]] == [2, 4]
    by_file = await terminal.run("results", "night.jsonl", "--out", "night.csv")
    assert (by_file.status, len((tmp_path / "night.csv").read_text().splitlines())) == (0, 3)
    assert "paused" in (await terminal.run("batches", "pause", made["id"])).out
    assert "running, 2 rows (2 queued)" in (await terminal.run("batches", "resume", made["id"])).out
    assert made["id"] in (await terminal.run("batches", "list")).out
    (tmp_path / "bad.jsonl").write_text('{"workflow": "graph.json", "set": {"1.colour": 1}}\nno')
    refused = await terminal.run("enqueue", "bad.jsonl")
    assert refused.status == 2
    refused.says("line 1: 1.colour: node 1 (EmptyImage) has no input 'colour'")
    refused.says("line 2: it is no JSON object")
    assert await live(bench) == 2
