"""A job that can't succeed is one dead letter, whatever crashes; it comes back once its cause is mended, once only."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from tests.promises.test_failures_end_as_their_class_says import with_missing_model
from tests.support.cli import Terminal
from tests.support.service import Service, small_workflow, until


async def all_ended(genflow: Service, jobs: int) -> None:
    async def ended() -> bool:
        return await genflow.sql("select count(*) from genflow.jobs where state >= 10") == [(jobs,)]

    await until(ended, f"{jobs} jobs have ended", 60.0, every_s=0.1)


async def test_a_hundred_jobs_of_which_twenty_lack_a_model_and_twenty_lose_their_connection(genflow: Service) -> None:
    """80 succeed, 20 are dead letters after one attempt each; requeued once the model is there, those succeed too."""
    [sim] = await genflow.simulate(seconds_per_megapixel=0)
    await genflow.api(base_delay_ms=50)
    terminal = Terminal(genflow.folder, genflow.url)

    async def submit(workflow: dict[str, Any], count: int) -> set[UUID]:
        return set(await asyncio.gather(*(genflow.submit(workflow) for _ in range(count))))

    await sim.knobs(reply={"mode": "lost", "queued": False, "times": 20})
    reset = await submit(small_workflow(color=1), 20)
    await genflow.worker(slots=20, lease=9, post_timeout=2, settle=2, poll_ms=200)

    async def all_reset() -> bool:
        return (await sim.get("/simulator/knobs"))["reply"] is None

    await until(all_reset, "twenty connections were reset")
    await genflow.sql("update genflow.servers set capabilities_hash = null")  # else they were refused at the door
    missing = await submit(with_missing_model(only=True), 20)
    good = await submit(small_workflow(color=2), 60)
    await all_ended(genflow, 100)

    rows = await genflow.sql("select id, state, attempt from genflow.jobs")
    assert {job for job, state, _ in rows if state == 10} == reset | good
    assert {(job, state, attempts) for job, state, attempts in rows if job in missing} == {
        (job, 11, 1) for job in missing
    }
    assert await genflow.sql("select count(*) from genflow.attempts where class = 'permanent'") == [(20,)]
    groups = (await terminal.run("dead", "list", "--since", "1h", "--group", "reason", "--json")).json["groups"]
    assert [group["count"] for group in groups] == [20]
    assert "node 4 (CheckpointLoaderSimple)" in groups[0]["key"]

    which = ("--code", "invalid_workflow", "--node", "CheckpointLoaderSimple", "--json")
    dry = await terminal.run("dead", "requeue", *which, "--dry-run")
    assert {UUID(each["requeued_from"]) for each in dry.json["requeued"]} == missing
    await sim.knobs(models={"checkpoints": ["nobody_has_this.safetensors"]})
    requeued = await terminal.run("dead", "requeue", *which)
    assert requeued.status == 0, requeued.err
    made = {UUID(each["id"]): UUID(each["requeued_from"]) for each in requeued.json["requeued"]}
    assert (len(made), set(made.values())) == (20, missing)
    assert (await terminal.run("dead", "requeue", *which)).json["requeued"] == [], "once"
    await all_ended(genflow, 120)

    for new, old in made.items():
        story = await genflow.story(new)
        assert (story["status"], story["requeued_from"], story["root_id"]) == ("succeeded", str(old), str(old))
    failed = await genflow.sql("select id, requeued_as from genflow.jobs where state = 11")
    assert dict(failed) == {old: new for new, old in made.items()}, "the old ones stay failed, and know their new ones"
    assert (await terminal.run("dead", "list")).out == ""
    prompts = (await sim.books())["prompts"]
    ran = {UUID(job): page["executions"] for job, page in prompts.items() if page["executions"]}
    assert ran == dict.fromkeys(reset | good | set(made), 1), "each that succeeded ran once, and nothing else ran"


async def test_a_worker_killed_around_the_last_commit_leaves_one_dead_letter(genflow: Service) -> None:
    """Killed before it, the next worker reads the end off the server; killed after it, there is nothing left to do."""
    await genflow.simulate(script="error,ok")
    await genflow.api()
    terminal = Terminal(genflow.folder, genflow.url)
    before = await genflow.worker("before", failpoints="end.before_commit=kill")
    job = await genflow.submit()
    await before.died()
    assert (await genflow.story(job))["error"] is None
    after = await genflow.worker("after", failpoints="end.after_commit=kill")
    await after.died()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "node_execution_error")
    await genflow.worker("last")
    await genflow.succeeded(await genflow.submit(small_workflow(color=7)))

    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    [letter] = (await terminal.run("dead", "list", "--json")).json["dead_letters"]
    assert (letter["id"], letter["attempts"]) == (str(job), 1)
    shown = (await terminal.run("dead", "show", str(job)[:8], "--json")).json
    assert (len(shown["attempts"]), len(shown["submits"]), shown["takeovers"]) == (1, 1, 1)
    assert shown["posted"]["3"]["inputs"]["filename_prefix"] == f"genflow/{job}/1/out"
    told = await terminal.run("dead", "show", str(job)[:8])
    for words in (
        "index 3 is out of bounds",
        "ImageToMask",
        "traceback",
        f"genflow/{job}/1/out",
        "genflow dead requeue",
    ):
        assert words in told.out

    refused = await terminal.run("dead", "requeue", str(job), "--set", "1.colour=7")
    assert refused.status == 2
    refused.says("node 1 (EmptyImage) has no input 'colour'")
    changed = await terminal.run("dead", "requeue", str(job)[:8], "--set", "1.color=7", "--json")
    new = UUID(changed.json["requeued"][0]["id"])
    await genflow.succeeded(new)
    twice = await terminal.run("dead", "requeue", str(job)[:8])
    assert twice.status == 1
    twice.says(f"requeued already, as job {new}")
    nothing_said = await terminal.run("dead", "purge")
    assert nothing_said.status == 2
    nothing_said.says("--all")
    purged = await terminal.run("dead", "purge", "--requeued", "--all")
    assert (purged.status, purged.out) == (0, f"{job}  purged\n")
    assert (await genflow.story(new))["root_id"] == str(job)
