"""Promise 8 and the choice of a server: what is full, away, unable or too small gets no job, and no job is hurt."""

from __future__ import annotations

from typing import Any

from tests.support.service import Process, Service, small_workflow, until


async def probed_again(genflow: Service, *, times: int = 3) -> None:
    """Wait until every server of every worker was probed so often from now on, while the claims go on."""
    query = "select server_id, seen_at from genflow.worker_servers order by 1"
    for _ in range(times):
        before = await genflow.sql(query)

        async def all_later(before: list[tuple[Any, ...]] = before) -> bool:
            now = await genflow.sql(query)
            return all(new[1] > old[1] for old, new in zip(before, now, strict=True))

        await until(all_later, "another probe of each server")


def times_said(worker: Process, event: str) -> int:
    """How often the worker's log has this event."""
    return worker.log.read_text(errors="replace").count(f" {event} ")


async def test_servers_that_others_filled_get_nothing_until_there_is_room(genflow: Service) -> None:
    s0, s1 = await genflow.simulate_pair(busy=5)
    await s1.knobs(script="500,ok")
    await genflow.api(base_delay_ms=60_000, jitter=False)
    worker = await genflow.worker(max_queue=5)
    job = await genflow.submit()
    await until(lambda: worker.said("all_servers_full"), "the worker says that all are full")
    await probed_again(genflow)
    assert (await genflow.story(job))["state"] == "queued"
    assert (await genflow.book(job))["posts"] == 0
    assert times_said(worker, "all_servers_full") == 1

    await s1.post("/queue", {"clear": True})
    await genflow.has(job, state="waiting")
    assert worker.said("scheduler: s1 chosen, queue lengths s0 5, s1 0")
    assert worker.said("servers_take_work_again")
    assert len((await s0.get("/queue"))["queue_pending"]) == 5, "prompts of others are counted and never harmed"

    # Both are empty now: the retry goes to the server of the attempt before, not to the first one.
    await s0.post("/queue", {"clear": True})
    await probed_again(genflow, times=2)
    await genflow.sql("update genflow.jobs set run_at = now() where id = %s", job)
    await genflow.succeeded(job)
    attempts = (await genflow.story(job))["attempts"]
    assert [(attempt["server"], attempt["outcome"]) for attempt in attempts] == [
        ("test/s1", "failed"),
        ("test/s1", "succeeded"),
    ]
    assert worker.said("scheduler: s1 chosen, queue lengths s0 0, s1 0")


async def test_a_job_goes_to_the_server_that_is_able_or_waits_and_says_why(genflow: Service) -> None:
    s0, s1 = await genflow.simulate_pair()
    await s0.knobs(lacks=["ImageBlur"], busy=3)
    await s1.knobs(lacks=["ImageInvert"])
    await genflow.api(validation="lenient")
    worker = await genflow.worker()
    job = await genflow.submit(small_workflow())
    await genflow.succeeded(job)
    assert (await genflow.story(job))["attempts"][0]["server"] == "test/s0", "the longer queue, and the only one able"

    both = small_workflow(prefix="both") | {
        "4": {"class_type": "ImageBlur", "inputs": {"image": ["1", 0], "blur_radius": 1, "sigma": 1.0}},
        "5": {"class_type": "SaveImage", "inputs": {"images": ["4", 0], "filename_prefix": "blurred"}},
    }
    waits = await genflow.submit(both)
    why = "no known server can run it; the closest lacks node ImageBlur"
    await genflow.has(waits, waits_because=why)
    await until(lambda: worker.said("no_server_is_able"), "the worker says so")
    await probed_again(genflow)
    assert (await genflow.story(waits))["attempts"] == []
    assert (await genflow.book(waits))["posts"] == 0
    assert times_said(worker, "no_server_is_able") == 1

    # The node was installed there, and the server restarted: that is noticed, and told with both boots.
    await s1.knobs(lacks=[], restart=0.0)
    story = await genflow.succeeded(waits) and await genflow.story(waits)
    assert (story["attempts"][0]["server"], story["waits_because"]) == ("test/s1", None)
    assert worker.said("server_restarted")


async def test_a_job_that_ran_out_of_memory_goes_to_the_bigger_server(genflow: Service) -> None:
    s0, s1 = await genflow.simulate_pair(vram=f"{8 * 1024**3},{24 * 1024**3}")
    await s0.knobs(script="oom,ok")
    await genflow.api(base_delay_ms=50)
    await genflow.worker()
    job = await genflow.submit_portrait()  # its photo lies on the small server then, and draws it back there
    await genflow.succeeded(job)
    attempts = (await genflow.story(job))["attempts"]
    assert [(attempt["server"], attempt["class"]) for attempt in attempts] == [("test/s0", "oom"), ("test/s1", None)]
    assert await genflow.sql("select avoid_id is not null, min_vram from genflow.jobs") == [(True, 8 * 1024**3)]
    assert (await s1.books())["prompts"][str(job)]["executions"] == 1


async def test_nothing_is_claimed_while_no_server_answers(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    sim.process.freeze()
    await genflow.api()
    worker = await genflow.worker()
    job = await genflow.submit()
    await probed_again(genflow)
    story = await genflow.story(job)
    assert (story["state"], story["token"], story["attempts"]) == ("queued", 0, [])
    assert times_said(worker, "server_down") == 1, "with its reason, and once"
    assert worker.said("no answer within 0.5 s")
    assert times_said(worker, "no_healthy_server") == 1
    sim.process.thaw()
    await genflow.succeeded(job)
    assert (await genflow.story(job))["attempts_spent"] == 1
    assert times_said(worker, "server_up") == 1
