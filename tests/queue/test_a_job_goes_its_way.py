"""The whole way of a job through the queue, and every fence on it."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from genflow.errors import GenflowError
from genflow.failures import Policy, failure
from genflow.jobs import State, Status, SubmitState
from genflow.protocol import HistoryEntry
from genflow.queue import JobCanceled, LeaseLost, Registry, SlotTaken
from genflow.queue.queue import PLACES_TOLD, QueueFull, retry_after_s
from genflow.queue.records import KeyInUse, NewJob
from genflow.storage.store import StoredBlob
from tests.queue.conftest import ENTRY, Bench, output


async def test_from_enqueue_to_succeeded(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    work = await ledger.load(hold)
    assert work.submit is None
    assert work.attempt == 0
    photo = [("genflow/x/ab.png", b"\xab")]
    await ledger.upload_begun(hold, server_id=server, files=photo)
    assert (await ledger.load(hold)).uploads == [], "on its way is not there"
    await ledger.upload_done(hold, server_id=server, boot=None, files=photo)
    submit = uuid4()
    intent = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    assert (intent.no, intent.attempt) == (1, 1)
    assert not await ledger.receipt(hold, intent.no, number=0.0, client_id="c")
    assert not await ledger.running(hold, intent.no, deadline_s=60)
    view = await bench.queue.view(job, watched=True)
    assert view is not None
    assert view.status is Status.RUNNING
    assert not await ledger.run_ended(hold, intent.no, ENTRY)
    assert (await ledger.load(hold)).uploads[0].hash == b"\xab"
    assert await ledger.finish(hold, [output()]) is State.SUCCEEDED
    view = await bench.queue.view(job)
    assert view is not None
    assert view.status is Status.SUCCEEDED
    assert [o.name for o in view.outputs] == ["a.png"]
    assert view.execution_ms == 2_500
    story = await bench.queue.story(job)
    assert story is not None
    assert [(a["no"], a["outcome"], a["gpu_ms"]) for a in story["attempts"]] == [(1, "succeeded", 2_500)]
    assert [s["state"] for s in story["submits"]] == [SubmitState.ENDED]


async def test_a_stale_token_writes_nothing(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [stale] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    await bench.let_leases_run_out()
    assert await bench.sweeps.rescue() == 1
    [hold] = await bench.claim("w2", server)
    before = await bench.row(job)
    entry = ENTRY
    for write in (
        lambda h: ledger.renew(h),
        lambda h: ledger.upload_begun(h, server_id=server, files=[("n", b"h")]),
        lambda h: ledger.upload_done(h, server_id=server, boot=None, files=[("n", b"h")]),
        lambda h: ledger.intent(h, submit=uuid4(), server_id=server, boot=None, slots=2),
        lambda h: ledger.receipt(h, 1, number=1.0, client_id="c"),
        lambda h: ledger.running(h, 1, deadline_s=9),
        lambda h: ledger.run_ended(h, 1, entry),
        lambda h: ledger.release(h),
        lambda h: ledger.end_attempt(h, state=State.FAILED, no=None, failure=failure("run_timeout", "x")),
        lambda h: ledger.finish(h, [output()]),
        lambda h: ledger.close_submit(h, 1, SubmitState.LOST, reason="x"),
    ):
        stale.lost = False
        with pytest.raises(LeaseLost):
            await write(stale)
        assert stale.lost
    assert await bench.row(job) == before
    assert await bench.rows("select 1 from genflow.submits union all select 1 from genflow.server_files") == []
    assert before["takeovers"] == 1
    assert hold.token == stale.token + 2


async def test_the_same_worker_is_fenced_from_its_own_past(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [stale] = await bench.claim("w1", server)
    await bench.let_leases_run_out()
    await bench.sweeps.rescue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    with pytest.raises(LeaseLost):
        await ledger.renew(stale)
    assert not await ledger.renew(hold)


async def test_a_valid_lease_is_touched_by_nobody(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    assert await bench.sweeps.rescue() == 0
    assert await bench.claim("w2", server) == []
    await bench.let_leases_run_out()
    ledger = await bench.worker("w1")
    assert not await ledger.renew(hold), "a lease that ran out but was not taken may be renewed"
    assert await bench.sweeps.rescue() == 0


async def test_slots_hold_across_workers(bench: Bench) -> None:
    server = await bench.server(slots=2)
    for _ in range(4):
        await bench.enqueue()
    held = [(name, hold) for name in ("w1", "w2") for hold in await bench.claim(name, server, limit=2)]
    assert len(held) == 4, "claims alone take no slot"
    outcomes = []
    for name, hold in held:
        ledger = await bench.worker(name)
        try:
            await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
            outcomes.append("submitted")
        except SlotTaken:
            await ledger.release(hold, delay_s=1.0)
            outcomes.append("taken")
    assert sorted(outcomes) == ["submitted", "submitted", "taken", "taken"]
    assert await bench.claim("w3", server, limit=2) == [], "no claim while the server's slots are in use"


async def test_a_quarantine_holds_at_once_for_every_worker(bench: Bench) -> None:
    server, other = await bench.server("a"), await bench.server("b")
    job = await bench.enqueue()
    await bench.enqueue()
    [following] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    await ledger.intent(following, submit=uuid4(), server_id=server, boot=None, slots=2)
    [hold] = await bench.claim("w1", server)
    await Registry(bench.writer, following.worker_id).quarantine(server, "CUDA fault", seconds=60.0, needs_run=True)
    with pytest.raises(SlotTaken):
        await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.release(hold)
    await ledger.release(following)
    assert await bench.claim("w2", server) == []
    second = await bench.worker("w2")
    assert [claim.job_id for claim, _ in await second.claim_bound([server], 5)] == [job], "what runs there is followed"
    assert len(await bench.claim("w2", other)) == 1


async def test_one_open_submit_per_job(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    first = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    again = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    assert again == first, "the same intent sent twice, after a lost commit, is one submit"
    with pytest.raises(SlotTaken):
        await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)


async def test_cancel_before_the_intent_is_final(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    assert await bench.queue.cancel(job)
    ledger = await bench.worker("w1")
    with pytest.raises(JobCanceled):
        await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    assert (await bench.row(job))["state"] == State.CANCELED
    assert await bench.queue.cancel(job), "twice is fine"
    assert not await bench.queue.cancel(uuid4()), "an unknown job is told apart"


async def test_cancel_after_the_intent_is_a_wish_until_its_holder_ends_it(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await bench.queue.cancel(job)
    view = await bench.queue.view(job)
    assert view is not None
    assert view.status is Status.CANCELING
    assert await ledger.heartbeat([hold], draining=False) == {job}
    assert await ledger.receipt(hold, intent.no, number=0.0, client_id="c"), "the receipt brings the wish"
    assert await ledger.run_ended(hold, intent.no, ENTRY)
    assert await ledger.finish(hold, [output()]) is State.CANCELED, "the result came too late"
    view = await bench.queue.view(job)
    assert view is not None
    assert view.outputs == []
    assert view.status is Status.CANCELED


async def test_cancel_while_collecting_is_final_and_drops_the_result(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.run_ended(hold, intent.no, ENTRY)
    await bench.queue.cancel(job)
    with pytest.raises(JobCanceled):
        await ledger.finish(hold, [output()])
    assert await bench.rows("select 1 from genflow.assets") == []


async def test_a_canceling_job_is_never_retried(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await bench.queue.cancel(job)
    state = await ledger.end_attempt(
        hold, state=State.WAITING, no=intent.no, failure=failure("run_timeout", "x"), delay_s=2.0
    )
    assert state is State.CANCELED
    assert (await bench.row(job))["error"] is None


async def test_retry_waits_then_keeps_its_place(bench: Bench) -> None:
    server = await bench.server()
    first = await bench.enqueue()
    second = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.running(hold, intent.no, deadline_s=60)
    await ledger.end_attempt(hold, state=State.WAITING, no=intent.no, failure=failure("run_timeout", "x"), delay_s=60.0)
    row = await bench.row(first)
    assert (row["state"], row["attempt"], row["server_id"]) == (State.WAITING, 1, None)
    view = await bench.queue.view(first)
    assert view is not None
    assert view.status is Status.RUNNING, "running never goes back to queued"
    assert await bench.sweeps.due() == 0
    await bench.rows("update genflow.jobs set run_at = genflow.clock() where id = %s returning 1", first)
    assert await bench.sweeps.due() == 1
    assert [h.job_id for h in await bench.claim("w2", server, limit=2)] == [first, second]


async def test_release_with_an_open_submit_stays_bound(bench: Bench) -> None:
    server, other = await bench.server("a"), await bench.server("b")
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    await ledger.release(hold, handed_over=True)
    row = await bench.row(job)
    assert (row["state"], row["server_id"], row["takeovers"], row["moved"]) == (State.QUEUED, server, 0, 1)
    second = await bench.worker("w2")
    assert await bench.claim("w2", other) == []
    assert await second.claim_bound([other], 5) == []
    [(claim, taken)] = await second.claim_bound([server, other], 5)
    assert claim.server_id == server
    assert claim.since_last_holder_s is not None
    assert claim.since_last_holder_s >= 0
    work = await second.load(taken)
    assert work.open_submit is not None
    assert work.open_submit.uuid == submit


async def test_the_queue_refuses_past_its_limit_and_keeps_the_key_free(bench: Bench) -> None:
    queue = type(bench.queue)(bench.pool, queue_limit=2, retention_s=60.0)
    bench.queue = queue
    await bench.enqueue()
    await bench.enqueue()
    with pytest.raises(QueueFull) as full:
        await bench.enqueue(key="k")
    assert full.value.headers["Retry-After"] == "60"
    assert (full.value.status, full.value.code) == (429, "queue_full")
    assert await bench.rows("select 1 from genflow.job_keys") == []
    bench.queue = type(queue)(bench.pool, queue_limit=3, retention_s=60.0)
    await bench.enqueue(key="k")


async def test_a_place_far_back_is_told_at_the_next_look(bench: Bench) -> None:
    queue = type(bench.queue)(bench.pool, queue_limit=10 * PLACES_TOLD, retention_s=60.0)

    def job() -> NewJob:
        return NewJob(id=uuid4(), workflow="{}", body_hash=b"hash", policy=Policy())

    places = [(await queue.enqueue(job())).queue_position for _ in range(PLACES_TOLD)]
    assert places == list(range(1, PLACES_TOLD + 1))
    last = [await queue.enqueue(job()) for _ in range(2)][-1]
    assert last.queue_position is None
    look = await queue.view(last.id)
    assert look is not None
    assert look.queue_position == PLACES_TOLD + 2


@pytest.mark.parametrize(
    ("excess", "rate", "seconds"), [(1, 0, 60), (1, 60, 1), (10, 60, 10), (1, 600, 1), (999, 6, 60)]
)
def test_retry_after(excess: int, rate: int, seconds: int) -> None:
    assert retry_after_s(excess, rate) == seconds


async def test_one_key_makes_one_job_of_ten_at_once(bench: Bench) -> None:
    results = await asyncio.gather(*(bench.enqueue(key="same") for _ in range(10)), return_exceptions=True)
    jobs = [result for result in results if not isinstance(result, BaseException)]
    reused = [result for result in results if isinstance(result, KeyInUse)]
    assert (len(jobs), len(reused)) == (1, 9)
    assert all(error.details is not None and error.details["job_id"] == str(jobs[0]) for error in reused)
    assert len(await bench.rows("select 1 from genflow.jobs")) == 1


async def test_a_live_job_outlasts_its_retention(bench: Bench) -> None:
    job = await bench.enqueue()
    await bench.rows("update genflow.jobs set expires_at = genflow.clock() - interval '1 s' returning 1")
    assert await bench.queue.view(job) is not None
    assert await bench.queue.story(job) is not None
    assert [row["id"] for row in await bench.queue.page(limit=5)] == [job]
    assert await bench.queue.cancel(job)
    await bench.rows("update genflow.jobs set expires_at = genflow.clock() - interval '1 s' returning 1")
    assert await bench.queue.view(job) is None, "a finished one past its time is gone"


async def test_an_input_deleted_meanwhile_is_named(bench: Bench) -> None:
    with pytest.raises(GenflowError) as refused:
        await bench.queue.enqueue(
            NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy(), assets=(uuid4(),), idempotency_key="k")
        )
    assert refused.value.code == "missing_asset"
    assert await bench.rows("select 1 from genflow.job_keys") == []


async def test_a_key_may_be_used_again_after_a_day(bench: Bench) -> None:
    await bench.enqueue(key="k")
    await bench.rows("update genflow.job_keys set expires_at = genflow.clock() - interval '1 s' returning 1")
    await bench.enqueue(key="k")
    with pytest.raises(KeyInUse):
        await bench.enqueue(key="k")


async def test_a_blob_that_is_being_deleted_is_refused(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.run_ended(hold, intent.no, ENTRY)
    await bench.rows(
        "insert into genflow.blobs (hash, sha256, size, state, touched_at) values (%s, 's', 1, 2, now()) returning 1",
        b"h" * 32,
    )
    assert await ledger.finish(hold, [output()]) is None
    assert (await bench.row(job))["state"] == State.HELD
    with pytest.raises(GenflowError):
        await bench.queue.files.add(StoredBlob(b"h" * 32, b"s", 1), name="n", type="image", content_type="image/png")


async def test_outputs_that_are_no_strict_json_are_kept_all_the_same(bench: Bench) -> None:
    server = await bench.server()
    for ending in ("run", "attempt"):
        job = await bench.enqueue()
        [hold] = await bench.claim("w1", server)
        ledger = await bench.worker("w1")
        intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
        said = {"score": [float("nan"), float("-inf"), 1.5], "text": ["a\x00b \ud800"]}
        entry = HistoryEntry("success", None, {"3": said}, None, 1_000, 3_500, {})
        if ending == "run":
            await ledger.run_ended(hold, intent.no, entry)
            work = await ledger.load(hold)
            assert work.submit is not None
            assert work.submit.entry == {"outputs": {"3": said | {"score": [None, None, 1.5]}}}
            await ledger.finish(hold, [])
        else:
            await ledger.end_attempt(hold, state=State.FAILED, no=intent.no, entry=entry)
        assert State((await bench.row(job))["state"]).terminal
