"""What the sweeps and the chores do with jobs that nobody holds."""

from __future__ import annotations

from uuid import uuid4

import pytest

from genflow.errors import GenflowError
from genflow.failures import Policy, failure
from genflow.jobs import State, Status, SubmitState
from genflow.queue import SlotTaken, StartByPassed
from tests.queue.conftest import ENTRY, Bench, output


async def test_no_rescue_for_a_lease_after_postgres_started(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    await bench.claim("w1", server)
    await bench.let_leases_run_out()
    assert await type(bench.sweeps)(bench.writer, lease_s=86_400.0).rescue() == 0
    assert await bench.sweeps.rescue() == 1


async def test_too_many_takeovers_are_a_dead_letter_with_a_stop_chore(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue(policy=Policy(max_takeovers=1))
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    await bench.let_leases_run_out()
    await bench.sweeps.rescue()
    assert len(await (await bench.worker("w2")).claim_bound([server], 1)) == 1
    await bench.let_leases_run_out()
    await bench.sweeps.rescue()
    row = await bench.row(job)
    assert row["state"] == State.FAILED
    assert row["error"]["code"] == "kills_its_workers"
    chore = await bench.sweeps.claim_chore([server], lease_s=60)
    assert chore is not None
    assert (chore.kind, chore.submit) == ("stop", submit)
    assert await bench.sweeps.claim_chore([server], lease_s=60) is None, "a chore is leased"
    next_job = await bench.enqueue()
    assert await bench.claim("w2", server) == [], "no new work there before what was given up is stopped"
    await bench.sweeps.end_chore(chore)
    assert await bench.rows("select kind from genflow.chores") == [{"kind": "scrub"}], (
        "what it may have left goes later"
    )
    assert [each.job_id for each in await bench.claim("w2", server)] == [next_job]


async def test_start_by_expires_a_job_only_before_any_run(bench: Bench) -> None:
    server = await bench.server()
    late = await bench.enqueue(start_by_s=1.0)
    submitted = await bench.enqueue(start_by_s=3600.0)
    await bench.rows("update genflow.jobs set start_by = genflow.clock() where id = %s returning 1", late)
    [hold] = await bench.claim("w1", server, limit=5)
    assert hold.job_id == submitted, "a late job is not claimed"
    ledger = await bench.worker("w1")
    await bench.rows("update genflow.jobs set start_by = genflow.clock() where id = %s returning 1", submitted)
    with pytest.raises(StartByPassed):
        await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await bench.rows("update genflow.jobs set start_by = genflow.clock() + '1 h' where id = %s returning 1", submitted)
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.release(hold)
    await bench.rows("update genflow.jobs set start_by = genflow.clock() where id = %s returning 1", submitted)
    assert await bench.sweeps.expire() == 1
    assert (await bench.row(late))["state"] == State.EXPIRED
    assert (await bench.row(submitted))["state"] == State.QUEUED


async def test_a_cancel_on_an_unreachable_server_ends_after_a_while(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.release(hold)
    await bench.queue.cancel(job)
    assert await bench.sweeps.cancel_unreachable(unseen_s=60.0) == 0
    await bench.rows("update genflow.jobs set cancel_at = genflow.clock() - interval '61 s' returning 1")
    assert await bench.sweeps.cancel_unreachable(unseen_s=60.0) == 1
    assert (await bench.row(job))["state"] == State.CANCELED
    assert await bench.sweeps.claim_chore([server], lease_s=60) is not None


async def test_a_result_on_a_server_that_never_returns_is_given_up_after_its_window(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.run_ended(hold, intent.no, ENTRY)
    assert await bench.sweeps.uncollected(window_s=0.0, unseen_s=0.0) == 0, "its holder is at it"
    await ledger.release(hold, collect_failed=True)
    assert await bench.sweeps.uncollected(window_s=3600.0, unseen_s=60.0) == 0
    await bench.rows("update genflow.submits set ended_at = genflow.clock() - interval '2 h' returning 1")
    await bench.rows("update genflow.servers set last_seen_at = genflow.clock() returning 1")
    assert await bench.sweeps.uncollected(window_s=3600.0, unseen_s=60.0) == 0, "a server that answers is asked"
    await bench.rows("update genflow.servers set last_seen_at = genflow.clock() - interval '61 s' returning 1")
    assert await bench.sweeps.uncollected(window_s=3600.0, unseen_s=60.0) == 1
    row = await bench.row(job)
    assert (row["state"], row["server_id"], row["error"]["code"]) == (State.FAILED, None, "output_unavailable")
    assert [a["code"] for a in await bench.rows("select code from genflow.attempts")] == ["output_unavailable"]


async def test_a_job_that_a_sweep_ends_is_kept_from_its_end_on(bench: Bench) -> None:
    server = await bench.server()
    killer = await bench.enqueue(policy=Policy(max_takeovers=0))
    await bench.claim("w1", server)
    await bench.let_leases_run_out()
    late = await bench.enqueue(start_by_s=1.0)
    await bench.rows(
        "update genflow.jobs set created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h',"
        " start_by = start_by - interval '2 h' returning 1"
    )
    assert (await bench.sweeps.rescue(), await bench.sweeps.expire()) == (1, 1)
    for job, status in ((killer, Status.FAILED), (late, Status.EXPIRED)):
        view = await bench.queue.view(job)
        assert view is not None, "its retention, one hour, begins with its end"
        assert view.status is status
        assert view.ended_at is not None
        assert (view.expires_at - view.ended_at).total_seconds() == 3600


async def test_a_late_receipt_has_its_server_asked_once(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    intent = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    await ledger.late_receipt(submit, 4.0)
    assert await bench.sweeps.late_chores() == 0, "an open submit may still be found and followed"
    await ledger.close_submit(hold, intent.no, SubmitState.REFUSED, reason="unknown", doubtful=True)
    assert (await ledger.load(hold)).doubtful == {server}
    assert await bench.sweeps.late_chores() == 1
    assert await bench.sweeps.late_chores() == 0
    assert await bench.sweeps.claim_chore([server], lease_s=60) is None, "its holder may submit there at any moment"
    second = uuid4()
    intent = await ledger.intent(hold, submit=second, server_id=server, boot=None, slots=2)
    assert await bench.sweeps.claim_chore([server], lease_s=60) is None, "a call by job id would hit the open submit"
    await ledger.run_ended(hold, intent.no, ENTRY)
    await ledger.finish(hold, [output()])
    chore = await bench.sweeps.claim_chore([server], lease_s=60)
    assert chore is not None
    assert chore.payload == {"late": True, "number": 4}
    await bench.sweeps.count_run(job, submit)
    await bench.sweeps.count_run(job, submit)
    assert (await bench.row(job))["doubled"] == 1, "once per submit"


async def test_no_submit_while_a_chore_stops_an_earlier_one_there(bench: Bench) -> None:
    server, other = await bench.server("a"), await bench.server("b")
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.end_attempt(
        hold,
        state=State.QUEUED,
        no=intent.no,
        submit_state=SubmitState.ABANDONED,
        failure=failure("would_not_stop", "x"),
    )
    assert await bench.sweeps.claim_chore([server], lease_s=60) is not None
    assert await bench.claim("w1", server) == []
    [again] = await bench.claim("w1", other)
    with pytest.raises(SlotTaken):
        await ledger.intent(again, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.intent(again, submit=uuid4(), server_id=other, boot=None, slots=2)


async def test_a_run_counts_as_doubled_only_beside_another(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    intent = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    await ledger.close_submit(hold, intent.no, SubmitState.REFUSED, reason="unknown", doubtful=True)
    await bench.sweeps.count_run(job, submit)
    assert (await bench.row(job))["doubled"] == 0


async def test_a_late_run_counts_beside_the_next_attempts_and_not_beside_a_failed_one(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    submits = []
    for ending in ("failed", "in doubt", "succeeded"):
        [hold] = await bench.claim("w1", server)
        ledger = await bench.worker("w1")
        submits.append(uuid4())
        intent = await ledger.intent(hold, submit=submits[-1], server_id=server, boot=None, slots=2)
        if ending == "succeeded":
            await ledger.run_ended(hold, intent.no, ENTRY)
            continue
        await ledger.end_attempt(
            hold,
            state=State.QUEUED,
            no=intent.no,
            submit_state=SubmitState.ENDED if ending == "failed" else SubmitState.REFUSED,
            executed=ending == "failed",
            doubtful=ending == "in doubt",
            failure=failure("submit_unknown", "x"),
        )
    assert [s["attempt"] for s in await bench.rows("select attempt from genflow.submits order by no")] == [1, 2, 3]
    await bench.sweeps.count_run(job, submits[1])
    assert (await bench.row(job))["doubled"] == 1
    await bench.rows("update genflow.submits set executed = no = 1 returning 1")
    await bench.sweeps.count_run(job, submits[1])
    assert (await bench.row(job))["doubled"] == 1, "the failed run before it was meant"


async def test_a_claim_without_its_answer_is_given_back_uncounted(bench: Bench) -> None:
    server = await bench.server()
    known, stray = await bench.enqueue(), await bench.enqueue()
    await bench.claim("w1", server, limit=2)
    ledger = await bench.worker("w1")
    assert await ledger.give_back_strays([known, stray]) == 0
    assert await (await bench.worker("w2")).give_back_strays([]) == 0, "another's jobs are not ours to give back"
    assert await ledger.give_back_strays([known]) == 1
    assert (await bench.row(known))["state"] == State.HELD
    row = await bench.row(stray)
    assert (row["state"], row["takeovers"], row["worker_id"]) == (State.QUEUED, 0, None)


async def test_a_server_unseen_for_too_long_gives_up_its_jobs_by_rule(bench: Bench) -> None:
    server, other = await bench.server("a"), await bench.server("b")
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=2)
    await ledger.release(hold)
    seen = "update genflow.servers set last_seen_at = genflow.clock() - %s * interval '1 s' where id = %s returning 1"
    await bench.rows(seen, 50, server)
    assert await bench.sweeps.give_up_lost(unseen_s=60.0) == 0
    await bench.rows(seen, 70, server)
    assert await bench.sweeps.give_up_lost(unseen_s=60.0) == 1
    row = await bench.row(job)
    assert (row["state"], row["server_id"], row["resubmits"], row["attempt"]) == (State.QUEUED, None, 1, 0)
    [again] = await bench.claim("w2", other)
    await (await bench.worker("w2")).intent(again, submit=uuid4(), server_id=other, boot=None, slots=2)
    chore = await bench.sweeps.claim_chore([server], lease_s=60)
    assert chore is not None
    assert chore.submit == submit, "stopped there should it come back"


async def test_a_forgotten_server_gives_up_its_jobs_and_is_ready_when_it_is_back(bench: Bench) -> None:
    server, other = await bench.server("a", slots=4), await bench.server("b")
    running, collecting = await bench.enqueue(), await bench.enqueue()
    ledger = await bench.worker("w1")
    for hold in await bench.claim("w1", server, limit=2, slots=4):
        intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=4)
        await ledger.receipt(hold, intent.no, number=1.0, client_id=None)
        if hold.job_id == collecting:
            await ledger.run_ended(hold, intent.no, ENTRY)
        await ledger.release(hold)
    await bench.rows(
        "insert into genflow.worker_servers select id, %s, 'http://a', true, genflow.clock() from genflow.workers"
        " returning 1",
        server,
    )
    servers = bench.queue.servers
    with pytest.raises(GenflowError, match="seen healthy a moment ago"):
        await servers.forget("a")
    with pytest.raises(GenflowError, match="no server c; known servers: a, b"):
        await servers.forget("c")
    assert (await bench.row(running))["server_id"] == server
    assert await servers.forget("a", seen=True) == 2
    assert [row["name"] for row in await servers.listed()] == ["b"]
    for job in (running, collecting):
        row = await bench.row(job)
        assert (row["state"], row["server_id"], row["resubmits"]) == (State.QUEUED, None, 1)
    again = await bench.claim("w1", other, limit=2)
    assert {hold.job_id for hold in again} == {running, collecting}
    for hold in again:
        await ledger.intent(hold, submit=uuid4(), server_id=other, boot=None, slots=2)
    assert await bench.server("a", slots=4) == server
    assert [(row["name"], row["state"]) for row in await servers.listed()] == [("a", 1), ("b", 1)]
    later = await bench.enqueue()
    assert await bench.claim("w1", server) == [], "what was given up there is stopped first"
    chore = await bench.sweeps.claim_chore([server], lease_s=60)
    assert chore is not None
    assert chore.job_id == running
    await bench.sweeps.end_chore(chore)
    assert [hold.job_id for hold in await bench.claim("w1", server)] == [later]


async def test_an_earlier_run_is_written_down_before_its_entry_is_deleted(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    earlier = uuid4()
    intent = await ledger.intent(hold, submit=earlier, server_id=server, boot=None, slots=2)
    await ledger.close_submit(hold, intent.no, SubmitState.REFUSED, reason="unknown", doubtful=True)
    await ledger.earlier_ran(hold, earlier, ENTRY)
    [row] = await bench.rows("select executed, entry, exec_end_ms from genflow.submits where uuid = %s", earlier)
    assert row == {"executed": True, "entry": {"outputs": ENTRY.outputs}, "exec_end_ms": ENTRY.exec_end_ms}


async def test_a_run_is_as_old_as_its_first_sight_whoever_holds_it(bench: Bench) -> None:
    server = await bench.server()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.running(hold, intent.no, deadline_s=60)
    await bench.rows("update genflow.submits set running_at = running_at - interval '100 s' returning 1")
    await ledger.release(hold, handed_over=True)
    second = await bench.worker("w2")
    [(_, taken)] = await second.claim_bound([server], 1)
    await second.running(taken, intent.no, deadline_s=60)
    submit = (await second.load(taken)).submit
    assert submit is not None
    assert submit.running_for_s is not None
    assert submit.running_for_s >= 100
