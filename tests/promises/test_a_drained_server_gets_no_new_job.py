"""A person takes a server out of the fleet and back: what it has goes on, nothing new goes there; one that is gone for
good lets go of its jobs.
"""

from __future__ import annotations

from tests.support.cli import Terminal
from tests.support.service import Service, small_workflow


async def test_a_drained_server_ends_what_it_has_and_gets_nothing_new(genflow: Service) -> None:
    first, second = await genflow.simulate_pair()
    await first.knobs(hold=2)
    await genflow.api()
    await genflow.worker(slots=1)
    running = await genflow.submit()
    await first.wait("held", running)
    terminal = Terminal(genflow.folder, genflow.url)
    drained = await terminal.run("servers", "drain", "test/s0")
    assert drained.out == "test/s0: draining, 1 prompt(s) of ours there\n"
    new = [await genflow.submit(small_workflow(color=color)) for color in (1, 2, 3)]
    for job in new:
        await genflow.succeeded(job)
        assert {submit["server"] for submit in (await genflow.story(job))["submits"]} == {"test/s1"}
    waiting = await terminal.start("servers", "drain", "test/s0", "--wait")
    await waiting.said("waiting for 1 prompt(s)")
    await first.knobs(release=True)
    await genflow.succeeded(running)
    assert (await waiting.end()).out == "test/s0: draining, 0 prompt(s) of ours there\n"
    assert await genflow.book(running) == {"posts": 1, "executions": 1, "interruptions": 0}

    assert (await terminal.run("servers", "resume", "test/s0")).out == "test/s0: ready, 0 prompt(s) of ours there\n"
    await terminal.run("servers", "drain", "test/s1")
    back = await genflow.submit(small_workflow(color=4))
    await genflow.succeeded(back)
    assert await second.count("posted", back) == 0


async def test_a_job_of_a_server_that_is_gone_for_good_goes_elsewhere_once_it_is_forgotten(genflow: Service) -> None:
    [gone, other] = await genflow.simulate(2)
    await gone.knobs(hold=2)
    await genflow.api()
    await genflow.worker(servers=[gone])
    job = await genflow.submit()
    await gone.wait("held", job)
    await gone.process.kill()
    await genflow.worker("second", servers=[other])
    await genflow.has(job, state="queued", server="test/sim0")
    terminal = Terminal(genflow.folder, genflow.url)
    stands = (await terminal.run("status")).out
    assert "test/sim0: ready, NOT SEEN, 1 prompt(s), 1 waiting for it" in stands
    assert "1 job(s) wait for servers that nobody sees" in stands
    forgotten = await terminal.run("servers", "forget", "test/sim0")
    assert forgotten.out == "test/sim0: forgotten, 0 prompt(s) of ours there\n"
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert (story["resubmits"], story["doubled"], story["attempts_spent"]) == (1, 0, 1)
    assert [submit["server"] for submit in story["submits"]] == ["test/sim0", "test/sim1"]
    assert "test/sim0" not in (await terminal.run("servers", "list")).out
