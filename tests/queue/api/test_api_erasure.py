"""DELETE /genflow/v1/jobs/{id}: one call, and what it answers."""

from __future__ import annotations

from uuid import UUID, uuid4

from genflow.queue.statements import statement
from genflow.storage.local import LocalStore
from tests.queue.api.test_api_jobs import finished
from tests.queue.conftest import ENTRY, Bench
from tests.support.api import Client

JOBS = "/genflow/v1/jobs"


async def gone(api: Client, job: UUID, *assets: UUID) -> None:
    """Nothing of the job is to be had any more."""
    for path in (f"/api/v2/jobs/{job}", f"{JOBS}/{job}", f"/api/v2/jobs/{job}/events"):
        assert (await api.get(path)).status == 404, path
    assert (await api.post(f"/api/v2/jobs/{job}/cancel")).status == 404
    for asset in assets:
        assert (await api.get(f"/api/v2/assets/{asset}")).status == 404
        assert (await api.get(f"/api/v2/assets/{asset}/content")).status == 404
    assert str(job) not in {each["id"] for each in (await api.get(JOBS)).json["jobs"]}


async def test_a_job_that_is_over_is_gone_with_the_answer(api: Client, bench: Bench, store: LocalStore) -> None:
    job, output = await finished(bench)
    [submit] = await bench.rows("select server_id from genflow.submits")
    answer = await api.ask("DELETE", f"{JOBS}/{job}")
    assert answer.status == 202, "a copy is on a server"
    [left] = answer.json["copies_left"]
    assert left["copies"] == 1
    assert {"id": str(job), "status": "erased", "files_deleted": True}.items() <= answer.json.items()
    await gone(api, job, output)
    [server] = (await api.get("/genflow/v1/servers")).json["servers"]
    assert (server["name"], server["erasures_left"]) == (left["server"], 1)
    await bench.rows("delete from genflow.chores where server_id = %s returning 1", submit["server_id"])
    again = await api.ask("DELETE", f"{JOBS}/{job}")
    assert (again.status, again.json["error"]["code"]) == (404, "not_found")
    assert (await api.ask("DELETE", f"{JOBS}/{uuid4()}")).status == 404


async def test_a_job_that_waits_is_canceled_and_gone_at_once(api: Client, bench: Bench) -> None:
    job = await bench.enqueue(key="a key")
    answer = await api.ask("DELETE", f"{JOBS}/{job}")
    assert answer.status == 200
    assert answer.json == {"id": str(job), "status": "erased", "files_deleted": True, "copies_left": []}
    await gone(api, job)
    assert await bench.rows("select job_id from genflow.job_keys") == [{"job_id": job}], "its key runs nothing"


async def test_a_job_that_runs_is_canceled_first(api: Client, bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w", server)
    ledger = await bench.worker("w")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    for _ in range(2):
        answer = await api.ask("DELETE", f"{JOBS}/{job}")
        assert (answer.status, answer.json["status"], answer.json["files_deleted"]) == (202, "canceling", False)
    await ledger.run_ended(hold, intent.no, ENTRY)
    await ledger.finish(hold, [])
    assert (await api.ask("DELETE", f"{JOBS}/{job}")).json["status"] == "erased"
    await gone(api, job)


async def test_a_job_past_its_time_is_not_there(api: Client, bench: Bench) -> None:
    job, output = await finished(bench)
    await bench.rows("update genflow.jobs set expires_at = genflow.clock() returning 1")
    await bench.rows("update genflow.assets set expires_at = genflow.clock() returning 1")
    await gone(api, job, output)
    assert (await api.ask("DELETE", f"{JOBS}/{job}")).status == 404
    async with bench.pool.connection() as connection:
        cursor = await connection.execute(statement("job_workflow"), {"job": job, "tenant": 1})
        assert await cursor.fetchall() == []


async def test_what_came_again_under_the_same_hash_is_kept(api: Client, bench: Bench, store: LocalStore) -> None:
    """A person erases a job, and sends the same photo at once."""
    workflow = '{"1": {"class_type": "LoadImage", "inputs": {"image": 1}}}'
    job = await bench.enqueue(workflow=workflow)

    async def send() -> UUID:
        form = b"".join(
            b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part
            for part in (
                (b"content_type", b"", b"image/png"),
                (b"file_path", b"", b"a.png"),
                (b"file", b'; filename="a.png"', b"a face"),
            )
        )
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = await api.post("/api/v2/assets", data=form + b"--x--\r\n", headers=kind)
        assert answer.status == 201, answer.body
        return UUID(answer.json["id"])

    first = await send()
    await bench.rows("insert into genflow.job_assets values (%s, %s) returning 1", first, job)
    assert (await api.ask("DELETE", f"{JOBS}/{job}")).status == 200
    await gone(api, job, first)
    assert await bench.rows("select state from genflow.blobs") == [{"state": 3}]
    second = await send()
    assert (await api.get(f"/api/v2/assets/{second}/content")).body == b"a face"
