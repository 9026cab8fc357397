"""A prompt that waits behind a long run is taken back for a server that idles: no attempt, no resubmit, one run; one
that began stays where it is; what its worker's death interrupts, the next one ends.
"""

from __future__ import annotations

from uuid import UUID

from tests.support.service import Service, Simulator, small_workflow, until

ONE_RUN = {"posts": 1, "executions": 1, "interruptions": 0}


async def waits_behind(genflow: Service, busy: Simulator) -> tuple[UUID, UUID]:
    """One job that runs on this server until it is let go, and one that is pending there."""
    await busy.knobs(hold=2)
    running = await genflow.submit()
    await busy.wait("held", running)
    waiting = await genflow.submit(small_workflow(color=1))
    await genflow.has(waiting, step="submit")
    return running, waiting


async def test_a_pending_prompt_goes_to_a_server_that_idles(genflow: Service) -> None:
    busy, late = await genflow.simulate(2)
    await late.process.kill()  # not there yet when the two are posted
    await genflow.api()
    first = await genflow.worker(servers=[busy], grace_s=0)
    running, waiting = await waits_behind(genflow, busy)
    assert await first.stop() == 0
    [back] = await genflow.simulate(1)
    await genflow.worker("second", servers=[busy, back])
    await genflow.succeeded(waiting)
    story = await genflow.story(waiting)
    assert [(submit["server"], submit["state"]) for submit in story["submits"]] == [
        ("test/sim0", "withdrawn"), ("test/sim2", "ended")
    ]  # fmt: skip
    assert (story["attempts_spent"], story["resubmits"], story["doubled"]) == (1, 0, 0)
    assert (await busy.books())["prompts"][str(waiting)]["executions"] == 0
    assert (await back.books())["prompts"][str(waiting)]["executions"] == 1
    await busy.knobs(release=True)
    await genflow.succeeded(running)
    assert await genflow.book(running) == ONE_RUN


async def test_what_began_meanwhile_stays_whoever_dies(genflow: Service) -> None:
    """Its worker dies with the mark written down; when another one looks, the prompt runs, and would hear a cancel."""
    [busy] = await genflow.simulate()
    await busy.knobs(hold=2)
    stranger = await busy.prompt_of_another_client()
    await busy.wait("held", stranger)
    await genflow.api()
    first = await genflow.worker("first", servers=[busy], grace_s=0)
    waiting = await genflow.submit()
    await genflow.has(waiting, step="submit")
    assert await first.stop() == 0
    await genflow.sql("update genflow.submits set stop_reason = 'neighbour' where job_id = %s", waiting)
    await busy.post("/interrupt", {"prompt_id": str(stranger)})
    await busy.wait("held", waiting)
    second = await genflow.worker("second", servers=[busy])
    await genflow.has(waiting, state="held")

    async def unmarked() -> bool:
        return (
            await genflow.sql("select 1 from genflow.submits where job_id = %s and stop_reason is null", waiting) != []
        )

    await until(unmarked, "the mark is taken off", 30.0)
    assert not second.said("stopping")
    await busy.knobs(release=True)
    await genflow.succeeded(waiting)
    story = await genflow.story(waiting)
    assert (len(story["submits"]), story["attempts_spent"], story["resubmits"]) == (1, 1, 0)
    assert await genflow.book(waiting) == ONE_RUN
