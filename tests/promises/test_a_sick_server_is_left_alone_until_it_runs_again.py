"""A server whose GPU is poisoned, or that answers and runs nothing, gets no work until a tiny prompt really ran there;
its jobs are done elsewhere, and the service stays ready.
"""

from __future__ import annotations

from tests.support.service import Service, small_workflow, until


async def test_a_poisoned_gpu_is_left_alone_until_it_ran_a_trial(genflow: Service) -> None:
    sick, _ = await genflow.simulate_pair()
    await genflow.api(jitter=False, base_delay_ms=50)
    worker = await genflow.worker(quarantine_s=1)
    await sick.knobs(error="cuda")
    job = await genflow.submit()
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert [(each["server"], each["outcome"], each["code"]) for each in story["attempts"]] == [
        ("test/s0", "failed", "cuda_fault"), ("test/s1", "succeeded", None)
    ]  # fmt: skip
    listed = (await genflow.request("GET", "/genflow/v1/servers"))[1]["servers"]
    assert [(each["name"], each["state"], each["reason"]) for each in listed] == [
        ("test/s0", "quarantined", "CUDA fault"), ("test/s1", "ready", None)
    ]  # fmt: skip
    async with genflow.http.get(f"{worker.ready['ready']}/readyz") as reply:
        assert reply.status == 200

    # The context is still poisoned: every trial fails, and time alone sets nothing free.
    await sick.knobs(error="cuda")
    await until(lambda: worker.said("trial_failed"), "a trial failed")
    assert (await genflow.sql("select state from genflow.servers where name = 'test/s0'")) == [(2,)]
    later = await genflow.submit(small_workflow(color=1))
    await genflow.succeeded(later)
    assert await sick.count("posted", later) == 0

    await until(lambda: worker.said("trial_passed"), "it ran a trial")
    assert await sick.get("/history") == {} or str(job) in await sick.get("/history"), "the trial left no entry"
    await genflow.sql("update genflow.servers set state = 3 where name = 'test/s1'")
    again = await genflow.submit(small_workflow(color=2))
    await genflow.succeeded(again)
    assert await sick.count("posted", again) == 1


async def test_a_server_that_answers_and_runs_nothing_is_noticed(genflow: Service) -> None:
    """A stranger's prompt ended its worker thread: it stands there as running for ever, and ours waits."""
    [dead] = await genflow.simulate()
    await dead.knobs(worker_dead=True)
    stranger = await dead.prompt_of_another_client()
    await genflow.api()
    worker = await genflow.worker(stuck_s=1, quarantine_s=600)
    job = await genflow.submit()
    await until_reason(genflow, "answers HTTP but runs nothing")
    story = await genflow.has(job, state="queued", server=None)
    assert [submit["state"] for submit in story["submits"]] == ["withdrawn"]
    assert (story["attempts_spent"], story["resubmits"]) == (0, 0)
    queue = await dead.get("/queue")
    assert [item[1] for item in queue["queue_running"] + queue["queue_pending"]] == [str(stranger)], "ours is gone"
    assert await dead.count("posted", job) == 1

    await dead.knobs(worker_dead=False, restart=0.1)  # the one thing that helps; then it has to show that it runs
    await genflow.succeeded(job)
    assert worker.said("trial_passed")
    assert (await genflow.story(job))["attempts_spent"] == 1


async def until_reason(genflow: Service, reason: str) -> None:
    async def there() -> bool:
        return await genflow.sql("select 1 from genflow.servers where state = 2 and reason = %s", reason) != []

    await until(there, f"quarantined: {reason}")
