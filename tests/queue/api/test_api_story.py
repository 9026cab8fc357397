"""genflow's own view of jobs: the list page by page, and each job's story."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from genflow.failures import failure
from genflow.jobs import State, SubmitState
from tests.queue.api.test_api_jobs import finished, submitted
from tests.queue.conftest import Bench
from tests.support.api import Client

STORY = "/genflow/v1/jobs"


async def test_the_list_is_newest_first_and_its_cursor_meets_every_job_once(api: Client, bench: Bench) -> None:
    jobs = [str(await bench.enqueue()) for _ in range(7)]
    seen: list[str] = []
    query = "?limit=3"
    while True:
        page = (await api.get(STORY + query)).json
        seen += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        assert len(page["jobs"]) == 3
        await bench.enqueue()  # what is new meanwhile moves no page
        query = f"?limit=3&cursor={page['next_cursor']}"
    assert seen == jobs[::-1]
    whole = (await api.get(STORY)).json
    assert (len(whole["jobs"]), whole["next_cursor"]) == (9, None)


async def test_the_list_tells_the_state_and_can_be_narrowed_to_it(api: Client, bench: Bench) -> None:
    done, _ = await finished(bench)
    waits = await bench.enqueue()
    listed = {job["id"]: job for job in (await api.get(STORY)).json["jobs"]}
    assert (listed[str(done)]["state"], listed[str(done)]["status"]) == ("succeeded", "succeeded")
    assert listed[str(done)]["attempts"] == 1
    assert datetime.fromisoformat(listed[str(done)]["completed_at"]).tzinfo is not None
    assert (listed[str(waits)]["state"], listed[str(waits)]["completed_at"]) == ("queued", None)
    only = (await api.get(f"{STORY}?state=succeeded,failed&state=canceled")).json["jobs"]
    assert [job["id"] for job in only] == [str(done)]


async def test_a_query_that_means_nothing_is_named(api: Client) -> None:
    for query, code, field in [
        ("limit=0", "invalid_request", "limit"),
        ("limit=201", "invalid_request", "limit"),
        ("limit=x", "invalid_request", "limit"),
        ("limit=%D9%A3", "invalid_request", "limit"),
        ("limit=" + "9" * 5_000, "invalid_request", "limit"),
        ("cursor=", "invalid_cursor", "cursor"),
        ("cursor=-1", "invalid_cursor", "cursor"),
        ("cursor=" + "9" * 19, "invalid_cursor", "cursor"),
        ("state=runing", "invalid_request", "state"),
    ]:
        answer = await api.get(f"{STORY}?{query}")
        assert (answer.status, answer.code, answer.details["field"]) == (400, code, field), query[:40]


async def test_a_story_tells_every_attempt_and_submit(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    hold = await submitted(bench, job)
    running = (await api.get(f"{STORY}/{job}")).json
    assert (running["status"], running["state"], running["step"]) == ("running", "held", "submit")
    assert running["worker"] == str(bench.worker_ids["w1"])
    assert running["lease_until"] is not None
    assert [submit["state"] for submit in running["submits"]] == ["executing"]
    ledger = await bench.worker("w1")
    await ledger.end_attempt(
        hold, state=State.QUEUED, no=1, submit_state=SubmitState.ENDED, failure=failure("run_timeout", "too long")
    )
    server = await bench.server()
    [hold] = await bench.claim("w1", server)
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await bench.let_leases_run_out()
    assert await bench.sweeps.rescue() == 1
    answer = await api.get(f"{STORY}/{job}")
    assert answer.status == 200
    story = answer.json
    assert [(attempt["no"], attempt["outcome"], attempt["code"]) for attempt in story["attempts"]] == [
        (1, "failed", "run_timeout"),
        (2, None, None),
    ]
    assert [(submit["no"], submit["state"], submit["server"]) for submit in story["submits"]] == [
        (1, "ended", "gpu0"),
        (2, "intent", "gpu0"),
    ]
    assert (story["takeovers"], story["resubmits"], story["doubled"]) == (1, 0, 0)
    assert (story["server"], story["worker"], story["lease_until"]) == ("gpu0", None, None)
    assert (story["seed"], story["parameters"], story["error"]) == (None, None, None)
    for submit in story["submits"]:
        UUID(submit["uuid"])
        assert datetime.fromisoformat(submit["created_at"]).tzinfo is not None
