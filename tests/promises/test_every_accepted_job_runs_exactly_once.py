"""Promise 9: the queue refuses work past its limit and keeps all that it accepted; many workers run each job once."""

from __future__ import annotations

import asyncio

from tests.support.service import Service, small_workflow

LIMIT = 5


async def test_a_full_queue_refuses_and_keeps_what_it_accepted(genflow: Service) -> None:
    await genflow.simulate()
    await genflow.api(queue_limit=LIMIT)
    accepted = [await genflow.submit(small_workflow(color=n)) for n in range(LIMIT)]
    for send in ("/api/v2/jobs", "/genflow/v1/portraits"):
        if send.endswith("jobs"):
            call = genflow.http.post(f"{genflow.url}{send}", json={"workflow": small_workflow()})
        else:
            call = genflow.http.post(f"{genflow.url}{send}", data=genflow.portrait_form())
        async with call as reply:
            body = await reply.json()
            assert reply.status == 429, body
            assert body["error"]["code"] == "queue_full"
            assert reply.headers["Retry-After"].isdecimal()
            assert 1 <= int(reply.headers["Retry-After"]) <= 60
    assert len(await genflow.sql("select 1 from genflow.jobs")) == LIMIT, "nothing of what was refused is left"

    await genflow.worker()
    for job in accepted:
        await genflow.succeeded(job)
        assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    await genflow.succeeded(await genflow.submit(small_workflow(color=LIMIT)))  # there is room again


async def test_sixty_jobs_on_eight_workers_run_once_each(genflow: Service) -> None:
    simulators = await genflow.simulate_together(3)
    await genflow.api()
    jobs = [await genflow.submit(small_workflow(color=n)) for n in range(40)]
    starting = [asyncio.create_task(genflow.worker(f"worker{n}")) for n in range(8)]
    jobs += [await genflow.submit(small_workflow(color=n)) for n in range(40, 60)]
    await asyncio.gather(*starting)
    for job in jobs:
        await genflow.succeeded(job, within_s=60)
    books = [(await sim.books())["prompts"] for sim in simulators]
    for job in jobs:
        pages = [book[str(job)] for book in books if str(job) in book]
        assert sum(page["executions"] for page in pages) == 1, f"{job}: {pages}"
        # A pending prompt may be taken back for a server that idles: each submit is posted once, and one of them ran.
        submits = [submit for page in pages for submit in page["submits"].values()]
        assert {submit["posts"] for submit in submits} == {1}, f"{job}: {pages}"
    assert {prompt for book in books for prompt in book} == set(map(str, jobs)), "and nothing else ran"
    assert await genflow.sql("select 1 from genflow.jobs where doubled > 0 or resubmits > 0 or attempt <> 1") == []
    [(workers,)] = await genflow.sql("select count(distinct worker_id) from genflow.attempts")
    assert workers > 1, "the work was shared"
