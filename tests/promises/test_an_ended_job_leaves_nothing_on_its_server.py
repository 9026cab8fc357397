"""Once a job is at its end, its history entry, its files and its face photo are gone from the server; no others are."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.service import Service, Simulator, small_workflow, until


def sizes(genflow: Service, server: str, kind: str, job: UUID) -> list[int]:
    """The sizes of the job's own files of this kind on the server."""
    folder = next(genflow.folder.glob(f"{server}/**/{kind}"), None)
    own = [] if folder is None else sorted((folder / "genflow" / str(job)).rglob("*"))
    return [path.stat().st_size for path in own if path.is_file()]


async def scrubbed(genflow: Service, server: Simulator, job: UUID) -> None:
    """Wait until no chore of the job is left, and see that the server knows it no more."""

    async def done() -> bool:
        return await genflow.sql("select 1 from genflow.chores where job_id = %s", job) == []

    await until(done, f"{job} is scrubbed")
    assert await server.get(f"/history/{job}") == {}


async def test_what_a_job_left_is_taken_away_and_others_keep_theirs(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(scrub=True)
    await genflow.worker()
    stranger = await sim.prompt_of_another_client()
    portrait = await genflow.submit_portrait()
    failing = small_workflow(prefix="done before")
    failing["4"] = {"class_type": "ImageToMask", "inputs": {"image": ["2", 0], "channel": "alpha"}}
    failing["5"] = {"class_type": "MaskToImage", "inputs": {"mask": ["4", 0]}}
    failing["6"] = {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "never"}}
    failed = await genflow.submit(failing)
    umlaut = await genflow.submit(small_workflow(color=2, prefix="schöne Grüße"))
    for job in (portrait, umlaut):
        await genflow.succeeded(job)
    assert (await genflow.ended(failed))["status"] == "failed"
    for job in (portrait, failed, umlaut):
        await scrubbed(genflow, sim, job)
        assert sizes(genflow, "sim0", "output", job) == [0]
    assert sizes(genflow, "sim0", "input", portrait) == [0], "the face photo is gone"
    await sim.ran_to_its_end(stranger)
    books = await sim.books()
    [theirs] = books["prompts"][str(stranger)]["files"]
    assert theirs not in [each["filename"] for each in books["emptied"]], "another's picture stays"
    for job in (portrait, umlaut):
        [output] = (await genflow.job(job))["outputs"]
        async with genflow.http.get(output["url"]) as reply:
            assert len(await reply.read()) == output["size_bytes"] > 0, "ours is in the store"


async def test_a_scrub_outlives_its_worker_and_waits_for_its_server(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(scrub=True)
    worker = await genflow.worker(failpoints="scrub.before_history=kill")
    job = await genflow.submit(small_workflow())
    await genflow.succeeded(job)
    await worker.died()
    assert await sim.get(f"/history/{job}") != {}
    await genflow.sql("update genflow.chores set lease_until = null")
    await genflow.worker("second")
    await scrubbed(genflow, sim, job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}


@pytest.mark.parametrize("place", ["upload.in", "upload.after"])
async def test_a_photo_goes_that_nobody_saw_arrive(genflow: Service, place: str) -> None:
    """Its worker dies before the upload is recorded, and another server makes the portrait."""
    first, second = await genflow.simulate(2)
    await genflow.api(scrub=True)
    worker = await genflow.worker("first", servers=[first], failpoints=f"{place}=kill")
    job = await genflow.submit_portrait()
    await worker.died()
    if place == "upload.after":
        assert sizes(genflow, "sim0", "input", job) > [0], "the photo is there, and no row says so"
    await genflow.worker("second", servers=[second])
    await genflow.succeeded(job)
    await genflow.worker("third", servers=[first])
    for sim in (first, second):
        await scrubbed(genflow, sim, job)
    assert sizes(genflow, "sim0", "input", job) == [0]
    assert sizes(genflow, "sim1", "input", job) == [0]


async def test_nothing_is_taken_away_where_that_is_asked_for(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(scrub=False)
    await genflow.worker()
    job = await genflow.submit(small_workflow())
    await genflow.succeeded(job)
    assert await genflow.sql("select kind from genflow.chores") == []
    assert list(await sim.get(f"/history/{job}")) == [str(job)]
