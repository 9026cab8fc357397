"""Many jobs in one statement, under ids of their own: each is accepted once, whoever brings it and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import errors as pg

from genflow.failures import Policy, failure
from genflow.jobs import State
from genflow.queue import Fate, Queue
from genflow.queue.many import enqueue_many
from genflow.queue.records import NewJob
from genflow.queue.statements import statement
from genflow.queue.writer import Row
from tests.queue.conftest import Bench


def a_job(job_id: UUID | None = None, *, body: bytes = b"body", **fields: object) -> NewJob:
    return NewJob(id=job_id or uuid4(), workflow='{"1": 1}', body_hash=body, policy=Policy(), **fields)  # type: ignore[arg-type]


async def many(bench: Bench, *jobs: NewJob, queue: Queue | None = None) -> list[str]:
    """The fates of these jobs, brought by the queue `renders`."""
    arrivals = await (queue or bench.queue).enqueue_many(jobs, scope="rabbit", rabbit_queue="renders")
    return [arrival.fate.value for arrival in arrivals]


async def fail_next(bench: Bench, server: int) -> None:
    """The next job ends as failed."""
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.end_attempt(hold, state=State.FAILED, no=intent.no, failure=failure("run_timeout", "bad node"))


async def test_what_is_new_is_kept_in_its_order_and_what_is_known_runs_nothing(bench: Bench) -> None:
    jobs = [a_job(metadata={"row": str(n)}, priority=n) for n in range(3)]
    assert await many(bench, *jobs) == ["new"] * 3
    assert await many(bench, a_job(), *jobs, a_job(jobs[0].id, body=b"other")) == ["new", *["known"] * 3, "other_body"]
    rows = await bench.rows(
        "select id, priority, metadata, workflow, rabbit_queue from genflow.jobs join genflow.job_specs on job_id = id"
        " order by seq"
    )
    assert [row["id"] for row in rows[:3]] == [job.id for job in jobs]
    assert [(row["priority"], row["metadata"]) for row in rows[:3]] == [(n, {"row": str(n)}) for n in range(3)]
    assert {(row["workflow"], row["rabbit_queue"]) for row in rows} == {('{"1": 1}', "renders")}
    assert len(rows) == 4

    await bench.rows("delete from genflow.jobs where id = %s returning 1", jobs[0].id)
    assert await many(bench, jobs[0]) == ["known"], "an id outlives its job"


async def test_an_id_that_came_another_way_is_no_second_job(bench: Bench) -> None:
    job = a_job()
    await bench.queue.enqueue(job)
    assert await many(bench, job, a_job()) == ["known", "new"]
    other_way = a_job(body=b"of a file")
    await bench.queue.enqueue(other_way)
    assert await many(bench, a_job(other_way.id, body=b"of a message")) == ["other_body"]


async def test_a_key_leads_to_the_newest_job(bench: Bench) -> None:
    job, newest = a_job(), uuid4()
    await many(bench, job)
    await bench.rows("update genflow.job_keys set job_id = %s where key = %s returning 1", newest, str(job.id))
    [arrival] = await bench.queue.enqueue_many([job], scope="rabbit")
    assert (arrival.fate, arrival.job_id) == (Fate.KNOWN, newest)


async def test_nothing_is_accepted_past_the_limit(bench: Bench) -> None:
    small = Queue(bench.pool, queue_limit=3, retention_s=60)
    first, second, third, fourth = (a_job() for _ in range(4))
    assert await many(bench, first, queue=small) == ["new"]
    assert await many(bench, second, first, third, fourth, queue=small) == ["new", "known", "new", "full"]
    assert not await small.has_room()
    assert await many(bench, fourth, queue=small) == ["full"]
    await bench.queue.cancel(first.id)
    assert await small.has_room()
    assert await many(bench, fourth, queue=small) == ["new"]


async def test_two_bringers_of_the_same_jobs_make_each_once(bench: Bench) -> None:
    jobs = [a_job() for _ in range(40)]
    fates = await asyncio.gather(many(bench, *jobs), many(bench, *reversed(jobs)), many(bench, *jobs))
    assert sorted(fate for each in fates for fate in each) == ["known"] * 80 + ["new"] * 40


async def test_one_row_at_fault_leaves_nothing_behind(bench: Bench) -> None:
    with pytest.raises(pg.ForeignKeyViolation):
        await many(bench, a_job(), a_job(assets=(uuid4(),)))
    assert await bench.rows("select 1 from genflow.jobs") == []
    assert await bench.rows("select 1 from genflow.job_keys") == []


async def test_a_failed_job_of_a_broker_leaves_one_dead_letter_to_tell(bench: Bench) -> None:
    server = await bench.server()
    job = a_job(metadata={"a": "b"}, priority=3)
    await many(bench, job)
    assert job.id not in await bench.queue.settled([job.id, uuid4()])
    await fail_next(bench, server)
    own = await bench.enqueue()
    await fail_next(bench, server)
    assert (await bench.row(own))["state"] == State.FAILED, "a job that came another way"

    assert await bench.queue.settled([job.id, own]) == {own}, "a message is not done before its dead letter is told"
    assert await bench.sweeps.claim_dead_letter("another", lease_s=60) is None
    letter = await bench.sweeps.claim_dead_letter("renders", lease_s=60)
    assert letter is not None
    assert letter.error is not None
    assert (letter.job_id, letter.error["message"]) == (job.id, "bad node")
    assert (letter.workflow, letter.metadata, letter.priority) == ('{"1": 1}', {"a": "b"}, 3)
    assert await bench.sweeps.claim_dead_letter("renders", lease_s=60) is None, "it is leased"
    await bench.sweeps.postpone_chore(letter, delay_s=0)
    again = await bench.sweeps.claim_dead_letter("renders", lease_s=60)
    assert again is not None
    await bench.sweeps.end_chore(letter)  # its token is an old one
    assert await bench.queue.settled([job.id]) == set()
    await bench.sweeps.end_chore(again)
    assert await bench.queue.settled([job.id]) == {job.id}


async def test_a_canceled_job_of_a_broker_is_over_and_no_dead_letter(bench: Bench) -> None:
    job = a_job()
    await many(bench, job)
    await bench.queue.cancel(job.id)
    assert await bench.queue.settled([job.id]) == {job.id}
    assert await bench.sweeps.claim_dead_letter("renders", lease_s=60) is None


async def test_sweeps_that_end_a_job_leave_its_dead_letter_too(bench: Bench) -> None:
    server = await bench.server()
    job = NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy(max_takeovers=0))
    await many(bench, job)
    assert await bench.claim("w1", server)
    await bench.let_leases_run_out()
    assert await bench.sweeps.rescue() == 1
    letter = await bench.sweeps.claim_dead_letter("renders", lease_s=60)
    assert letter is not None
    assert letter.error is not None
    assert letter.error["code"] == "kills_its_workers"


async def test_ids_are_looked_up_one_by_one_however_many_are_known(bench: Bench) -> None:
    await bench.rows(
        "insert into genflow.job_keys (tenant_id, scope, key, job_id, body_hash)"
        " select 1, 'rabbit', id::text, id, ''"
        " from (select gen_random_uuid() as id from generate_series(1, 20000)) as k"
        " returning 1"
    )
    plans = []
    write = bench.writer.write

    async def explained(name: str, params: Mapping[str, Any]) -> list[Row]:
        async with bench.pool.connection() as connection:
            await connection.execute("analyze genflow.job_keys")
            cursor = await connection.execute(b"explain " + statement(name).encode(), params)
            plans.append("\n".join(row["QUERY PLAN"] for row in await cursor.fetchall()))
        return await write(name, params)

    bench.writer.write = explained  # type: ignore[method-assign]
    jobs = [a_job() for _ in range(500)]
    await enqueue_many(bench.writer, jobs, [0] * 500, scope="rabbit", queue_limit=1_000, retention_s=60.0)
    assert plans
    assert "Seq Scan on job_keys" not in plans[0], plans[0]
