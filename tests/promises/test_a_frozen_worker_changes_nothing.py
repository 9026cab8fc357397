"""Promise 3: frozen past its lease at any point and woken, a worker changes no job, no file and no server."""

from __future__ import annotations

import signal
from uuid import UUID

import pytest

from genflow.failpoints import FAILPOINTS
from tests.support.service import ON_THE_WAY, Process, Service, until

QUICK = {"seconds_per_step": 0.01, "seconds_per_megapixel": 0}

AFTER_THE_RUN = [name for name in FAILPOINTS if name.startswith("download.")] + [
    "wait.before_commit",
    "wait.after_commit",
]
"""Where the run is over when the worker freezes. Elsewhere it is woken while another's run is at work."""

LAST_INSTRUCTIONS = "submit.after_check"
"""Between the last look at the lease and the prompt's last byte: docs/design/protocol.md, section 8 (d)."""

PLACES = [name for name in ON_THE_WAY if name != LAST_INSTRUCTIONS]


async def freeze(genflow: Service, first: Process, job: UUID, place: str) -> None:
    """See to it that the worker stands still at this place."""
    if place in ("anywhere", "release.before", "cancel.before_stop"):
        await genflow.has(job, status="running")
    if place == "anywhere":
        first.freeze()
    elif place == "release.before":
        first.handle.send_signal(signal.SIGTERM)
    elif place == "cancel.before_stop":
        await genflow.request("POST", f"/api/v2/jobs/{job}/cancel")
    await first.frozen()


async def works(genflow: Service, second: Process, job: UUID) -> bool:
    """Whether this worker holds the job and has seen it running."""
    return bool(
        await genflow.sql(
            "select 1 from genflow.jobs where id = %s and worker_id = %s and deadline_at is not null",
            job, UUID(second.ready["worker"]),
        )
    )  # fmt: skip


@pytest.mark.parametrize("place", [*PLACES, "anywhere"])
async def test_woken_too_late(genflow: Service, place: str) -> None:
    await genflow.simulate_pair(**QUICK)
    for simulator in genflow.simulators:
        await simulator.knobs(hold=None if place in AFTER_THE_RUN else 2)
    await genflow.api()
    armed = "" if place == "anywhere" else f"{place}=freeze"
    first = await genflow.worker("first", failpoints=armed, grace_s=0)
    job = await genflow.submit_portrait()
    await freeze(genflow, first, job, place)
    second = await genflow.worker("second")
    canceled = place == "cancel.before_stop"
    if place in AFTER_THE_RUN or canceled:
        await genflow.ended(job)
    else:
        await until(lambda: works(genflow, second, job), "the second worker follows the run")

    before = await genflow.traces(job)
    first.thaw()
    if place == "release.before":  # it was leaving, and leaves
        assert await first.died() == 0
    else:
        knows = "succeeded" if place == "download.after_commit" else "not_held"
        await until(lambda: first.said(knows), f"{knows} in the log of the woken worker")
        assert await first.stop() == 0
    assert not first.said("attempt_broke")
    assert await genflow.traces(job) == before

    for simulator in genflow.simulators:
        await simulator.knobs(release=True)
    ended = await genflow.ended(job)
    assert ended["status"] == ("canceled" if canceled else "succeeded")
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": int(canceled)}
    story = await genflow.story(job)
    assert (story["doubled"], story["resubmits"]) == (0, 0)
    assert story["takeovers"] == (0 if canceled or place == "download.after_commit" else 1)


async def frozen_in_the_last_instructions(genflow: Service) -> tuple[Process, UUID]:
    """A worker that stands still before its POST's last byte, and whose job that is."""
    first = await genflow.worker("first", failpoints=f"{LAST_INSTRUCTIONS}=freeze")
    job = await genflow.submit_portrait()
    await first.frozen()
    return first, job


async def taken_over(genflow: Service, job: UUID, woken: str) -> None:
    """A second worker has gone on with the job, so far that the first is to be woken now."""
    second = await genflow.worker("second")
    if woken == "in mid-run":
        await until(lambda: works(genflow, second, job), "the second worker follows its own run")
    else:
        await genflow.succeeded(job)


@pytest.mark.parametrize("woken", ["in mid-run", "after the end"])
async def test_woken_in_the_last_instructions(genflow: Service, woken: str) -> None:
    """Its last byte leaves all the same. The run that comes of it, one at most, is detected and counted."""
    await genflow.simulate_pair(**QUICK)
    for simulator in genflow.simulators:
        await simulator.knobs(hold=2 if woken == "in mid-run" else None)
    await genflow.api()
    first, job = await frozen_in_the_last_instructions(genflow)
    await taken_over(genflow, job, woken)
    [(result, attempts)] = await genflow.sql("select state, attempt from genflow.jobs where id = %s", job)

    first.thaw()
    await until(lambda: first.said("not_held"), "the woken worker knows")

    async def looked_into() -> bool:
        news = await genflow.sql("select 1 from genflow.late_receipts where not chored")
        return not news and not await genflow.sql("select 1 from genflow.chores")

    assert await genflow.sql("select count(*) from genflow.late_receipts") == [(1,)]
    for simulator in genflow.simulators:
        await simulator.knobs(release=True)
    await genflow.succeeded(job)
    await until(looked_into, "the server was asked about the late prompt")
    book = await genflow.book(job)
    story = await genflow.story(job)
    assert book["executions"] in (1, 2)
    assert book["interruptions"] <= book["executions"] - 1, "the holder's run is let alone"
    assert story["doubled"] == book["executions"] - 1
    assert story["attempts_spent"] == 1
    if woken == "after the end":
        assert (await genflow.sql("select state, attempt from genflow.jobs where id = %s", job)) == [(result, attempts)]


@pytest.mark.parametrize("woken", ["in mid-run", "after the end"])
async def test_with_a_guard_the_last_instructions_run_nothing(genflow: Service, woken: str) -> None:
    """The same scene, with genflow's guard at the server: the late POST is refused, and one run is all there is."""
    await genflow.simulate_together(1, guard=True, **QUICK)
    (simulator,) = genflow.simulators
    await simulator.knobs(hold=2 if woken == "in mid-run" else None)
    await genflow.api()
    first, job = await frozen_in_the_last_instructions(genflow)
    await taken_over(genflow, job, woken)
    first.thaw()
    await until(lambda: first.said("not_held"), "the woken worker knows")
    await until(lambda: simulator.process.said(f"POST of prompt {job} was refused: stale"), "the guard refused it")
    await simulator.knobs(release=True)
    await genflow.succeeded(job)

    async def looked_into() -> bool:
        return not await genflow.sql("select 1 from genflow.late_receipts where not chored")

    await until(looked_into, "upkeep looked for a second run")
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    story = await genflow.story(job)
    assert (story["doubled"], story["resubmits"], story["attempts_spent"]) == (0, 0, 1)
    assert [server["guard"] for server in (await genflow.request("GET", "/genflow/v1/servers"))[1]["servers"]] == [True]


async def test_with_a_guard_a_late_post_comes_too_late_before_the_next_one_too(genflow: Service) -> None:
    """The next holder asked, and stands still before its own POST: the earlier submit is barred by then."""
    await genflow.simulate_together(1, guard=True, **QUICK)
    (simulator,) = genflow.simulators
    await genflow.api()
    first, job = await frozen_in_the_last_instructions(genflow)
    second = await genflow.worker("second", failpoints="submit.after_ask=freeze")
    await second.frozen()
    first.thaw()
    await until(lambda: simulator.process.said(f"POST of prompt {job} was refused: stale"), "the guard refused it")
    second.thaw()
    await genflow.succeeded(job)
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    assert (await genflow.story(job))["doubled"] == 0


async def test_a_guard_that_was_told_remembers_over_a_restart_of_its_server(genflow: Service) -> None:
    """The server starts anew between the bar and the late POST: its queue forgot all, its guard nothing."""
    await genflow.simulate_together(1, guard=True, **QUICK)
    (simulator,) = genflow.simulators
    await genflow.api()
    _, job = await frozen_in_the_last_instructions(genflow)
    await genflow.worker("second")
    await genflow.succeeded(job)
    [(submit, token)] = await genflow.sql(
        "select s.uuid, s.token from genflow.submits as s where s.job_id = %s order by s.no limit 1", job
    )
    await simulator.knobs(restart=0)
    await simulator.restarted()
    late = {"prompt_id": str(job), "prompt": {}, "extra_data": {"genflow": {"submit": str(submit), "token": token}}}
    async with genflow.http.post(f"{simulator.url}/prompt", json=late) as reply:
        told = await reply.json()
    assert (reply.status, told["error"]["type"], told["error"]["extra_info"]["reason"]) == (
        409, "genflow_guard", "stale",
    )  # fmt: skip


async def test_a_guard_that_knows_more_than_a_restored_database_lets_the_job_in_in_the_end(genflow: Service) -> None:
    """Its tokens begin below those that the guard saw. The holder did not lose its lease: no attempt is spent on it."""
    await genflow.simulate_together(1, guard=True, **QUICK)
    (simulator,) = genflow.simulators
    await genflow.api()
    job = await genflow.submit_portrait()
    await simulator.post("/genflow/guard", {"prompt_id": str(job), "submit": "of-an-earlier-life", "token": 3})
    worker = await genflow.worker()
    await genflow.succeeded(job)
    assert worker.said("token_behind")
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
    assert (await genflow.story(job))["attempts_spent"] == 1


async def test_woken_too_late_it_judges_no_server(genflow: Service) -> None:
    """Frozen with a CUDA fault in hand: by now another worker has judged the server, and that is over and done."""
    await genflow.simulate_pair(**QUICK)
    for simulator in genflow.simulators:
        await simulator.knobs(error="cuda")
    await genflow.api(base_delay_ms=50)
    first = await genflow.worker("first", failpoints="wait.before_commit=freeze", quarantine_s=0.5)
    job = await genflow.submit_portrait()
    await first.frozen()
    for simulator in genflow.simulators:
        await simulator.knobs(error=None)
    await genflow.worker("second", quarantine_s=0.5)
    await genflow.succeeded(job)
    assert (await genflow.story(job))["attempts"][0]["code"] == "cuda_fault"

    async def all_ready() -> bool:
        return await genflow.sql("select distinct state from genflow.servers") == [(1,)]

    await until(all_ready, "no server is in quarantine")
    before = await genflow.traces(job)
    first.thaw()
    await until(lambda: first.said("not_held"), "the woken worker knows")
    assert await first.stop() == 0
    assert not first.said("server_quarantined")
    assert await genflow.traces(job) == before
