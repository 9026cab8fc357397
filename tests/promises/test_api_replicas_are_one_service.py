"""Cases "API replicas", "Client retries the submit": any API will do, and one that dies in mid-submit costs nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from tests.support.service import Process, Service, small_workflow

JOBS = "/api/v2/jobs"
FLOOD = 1_500


async def submit_at(
    api: Process, genflow: Service, key: str, workflow: dict[str, Any] | None = None
) -> tuple[int, Any]:
    genflow.url = api.ready["ready"]
    return await genflow.request(
        "POST", JOBS, json={"workflow": workflow or small_workflow()}, headers={"Idempotency-Key": key}
    )


async def test_one_key_is_one_job_at_whatever_replica_and_any_of_them_serves_it(genflow: Service) -> None:
    await genflow.simulate()
    one, other = await genflow.api(), await genflow.api()
    answers = await asyncio.gather(
        *(submit_at((one, other)[turn % 2], genflow, "order-7", small_workflow(color=turn % 3)) for turn in range(20))
    )
    [made] = [body["id"] for status, body in answers if status == 201]
    refused = [body["error"] for status, body in answers if status == 422]
    assert [(error["code"], error["details"]["job_id"]) for error in refused] == [("idempotency_key_reuse", made)] * 19

    genflow.url = other.ready["ready"]
    status, body = await submit_at(one, genflow, "to-cancel")
    assert status == 201
    genflow.url = other.ready["ready"]
    assert await genflow.cancel(UUID(body["id"])) == "canceled"
    await genflow.worker()
    for api in (one, other):
        genflow.url = api.ready["ready"]
        job = await genflow.succeeded(UUID(made))
        assert job["urls"]["self"] == f"{genflow.url}{JOBS}/{made}"
        _, page = await genflow.request("GET", JOBS)
        assert [(item["id"], item["status"]) for item in page["jobs"]] == [
            (body["id"], "canceled"),
            (made, "succeeded"),
        ]
        status, told = await genflow.request("GET", f"{JOBS}/{made}/workflow")
        assert (status, told["format"], told["workflow"]["3"]["class_type"]) == (200, "api", "SaveImage")
    assert (await genflow.book(UUID(made)))["executions"] == 1
    assert (await genflow.book(UUID(body["id"])))["posts"] == 0


@pytest.mark.parametrize("failpoint", ["enqueue.before_commit", "enqueue.after_commit"])
async def test_a_replica_that_dies_in_mid_submit_leaves_one_job_or_a_free_key(genflow: Service, failpoint: str) -> None:
    await genflow.simulate()
    dying = await genflow.api(failpoints=f"{failpoint}=kill")
    other = await genflow.api()
    with pytest.raises(aiohttp.ClientError):
        await submit_at(dying, genflow, "order-7")
    await dying.died()
    status, body = await submit_at(other, genflow, "order-7")
    if failpoint == "enqueue.before_commit":
        assert status == 201
        job = UUID(body["id"])
    else:
        assert (status, body["error"]["code"]) == (422, "idempotency_key_reuse")
        job = UUID(body["error"]["details"]["job_id"])
    await genflow.worker()
    await genflow.succeeded(job)
    assert (await genflow.sql("select count(*) from genflow.jobs")) == [(1,)]
    assert (await genflow.book(job))["executions"] == 1


async def test_past_its_limit_the_queue_refuses_and_polls_stay_as_quick_as_they_were(genflow: Service) -> None:
    await genflow.api(queue_limit=150)
    job = await genflow.submit()
    polls: list[float] = []

    async def poll(flood: asyncio.Future[Any]) -> None:
        async with (
            aiohttp.ClientSession() as own
        ):  # else it would wait in the client for one of the flood's connections
            while not flood.done():
                began = time.monotonic()
                async with own.get(f"{genflow.url}{JOBS}/{job}") as reply:
                    assert (reply.status, (await reply.json())["status"]) == (200, "queued")
                polls.append(time.monotonic() - began)

    async def submit() -> tuple[int, str | None]:
        async with genflow.http.post(f"{genflow.url}{JOBS}", json={"workflow": small_workflow()}) as reply:
            await reply.read()
            return reply.status, reply.headers.get("Retry-After")

    flood = asyncio.gather(*(submit() for _ in range(FLOOD)))
    _, answers = await asyncio.gather(poll(flood), flood)
    taken = [status for status, _ in answers].count(201)
    assert 149 <= taken <= 149 + 8, "its limit, and at most what was in flight"
    refused = [again for status, again in answers if status == 429]
    assert len(refused) == FLOOD - taken
    assert all(again is not None and again.isdecimal() and 1 <= int(again) <= 60 for again in refused)
    print(f"{len(polls)} polls, the slowest {max(polls):.3f} s")
    assert max(polls) < 2.0, "no poll waits for the flood"
    status, page = await genflow.request("GET", f"{JOBS}?limit=100")
    assert (status, len(page["jobs"])) == (200, 100)
