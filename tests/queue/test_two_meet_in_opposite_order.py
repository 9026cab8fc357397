"""Pairs of statements that want the same rows, one behind the other: no deadlock, and the second sees the first.

The first has its locks in an open transaction; the second is seen waiting in `pg_stat_activity`, never guessed by time.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from genflow.jobs import State
from genflow.queue.statements import statement
from genflow.queue.writer import Row, columns
from tests.queue.conftest import ENTRY, Bench, output, waits_for_a_lock

HIGH, LOW = UUID(int=2**127), UUID(int=1)
"""Ids that sort one way; the rows are written the other way round."""


async def run(bench: Bench, name: str, params: dict[str, Any]) -> list[Row]:
    async with bench.pool.connection() as connection:
        cursor = await connection.execute(statement(name), params)
        return await cursor.fetchall() if cursor.description else []


def first_line(name: str) -> str:
    return statement(name).split("\n")[0][:40]


async def two_held(bench: Bench) -> tuple[dict[str, Any], list[UUID]]:
    """Two jobs of one worker, the later id first in the heap; a heartbeat for them in that order."""
    await bench.worker("w1")
    for job in (HIGH, LOW):
        await bench.rows(
            "insert into genflow.jobs (id, state, worker_id, token, created_at, expires_at, lease_until)"
            " values (%s, 3, %s, 1, genflow.clock(), genflow.clock() + interval '1 h', genflow.clock()) returning 1",
            job, bench.worker_ids["w1"],
        )  # fmt: skip
        await bench.rows(
            "insert into genflow.job_specs (job_id, workflow, body_hash, policy)"
            " values (%s, '{}', '', '{\"max_takeovers\": 3}') returning 1",
            job,
        )
    beat = {
        "jobs": [HIGH, LOW], "tokens": [1, 1], "worker": bench.worker_ids["w1"], "draining": False, "lease_s": 30.0,
    }  # fmt: skip
    return beat, [LOW, HIGH]


@pytest.mark.parametrize("name", ["heartbeat", "let_go", "purge_dead"])
async def test_many_rows_are_locked_in_the_order_of_their_ids(bench: Bench, name: str) -> None:
    """Another that holds the first row by id may still have the second: it was not taken yet, so nobody deadlocks."""
    beat, (low, high) = await two_held(bench)
    if name != "heartbeat":
        await bench.rows(
            "update genflow.jobs set state = 11, expires_at = genflow.clock() + interval '1 h' returning 1"
        )
    if name == "let_go":
        await bench.rows("update genflow.jobs set erase = true returning 1")
    params = {"heartbeat": beat, "let_go": {"jobs": [HIGH, LOW]}, "purge_dead": {"jobs": [HIGH, LOW], "tenant": 1}}[
        name
    ]
    async with bench.pool.connection() as other, other.transaction():
        await other.execute("select 1 from genflow.jobs where id = %s for update", [low])
        second = asyncio.create_task(run(bench, name, params))
        if name == "let_go":
            assert [row["id"] for row in await second] == [high], "sweepers pass by what is at work"
            return
        await waits_for_a_lock(bench, first_line(name))
        await other.execute("select 1 from genflow.jobs where id = %s for update nowait", [high])
    assert {row["id"] for row in await second} == {low, high}


@pytest.mark.parametrize("by", ["finish", "cancel"])
async def test_a_heartbeat_behind_an_end_does_not_renew_it(bench: Bench, by: str) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    if by == "finish":
        submit = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
        assert submit is not None
        await ledger.receipt(hold, 1, number=0.0, client_id="c")
        await ledger.run_ended(hold, 1, ENTRY)
    beat = {
        "jobs": [job], "tokens": [hold.token], "worker": hold.worker_id, "draining": False, "lease_s": 30.0,
    }  # fmt: skip
    async with bench.pool.connection() as first, first.transaction():
        if by == "finish":
            o = output()
            await first.execute(statement("finish"), {"worker": hold.worker_id, "retention_s": 60.0} | columns([{
                "job": job, "token": hold.token, "began": None,
                "ids": [o.id], "hashes": [b"h" * 32], "sha256s": [b"s" * 32], "sizes": [12], "nodes": ["3"],
                "keys": ["images"], "idxs": [0], "names": ["a.png"], "types": ["image"],
                "content_types": ["image/png"], "texts": [None],
            }]))  # fmt: skip
        else:
            await first.execute(statement("cancel"), {"job": job, "tenant": 1, "retention_s": 60.0})
        second = asyncio.create_task(run(bench, "heartbeat", beat))
        await waits_for_a_lock(bench, first_line("heartbeat"))
    assert await second == [], "the job is no longer its holder's"
    assert (await bench.row(job))["state"] == (State.SUCCEEDED if by == "finish" else State.CANCELED)


async def test_a_cancel_behind_a_claim_ends_what_was_claimed(bench: Bench) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    await bench.worker("w1")
    async with bench.pool.connection() as first, first.transaction():
        await first.execute(statement("claim_unbound"), {
            "server": server, "limit": 1, "slots": 2, "worker": bench.worker_ids["w1"], "lease_s": 30.0, "classes": [0],
            "elsewhere": [False], "bigger": [None],
        })  # fmt: skip
        cancel = asyncio.create_task(bench.queue.cancel(job))
        await waits_for_a_lock(bench, first_line("cancel"))
    assert await cancel
    row = await bench.row(job)
    assert (row["state"], row["token"]) == (State.CANCELED, 2), "the claim's token is worth nothing any more"


@pytest.mark.parametrize("sweep", ["rescue", "claim", "pause"])
async def test_who_takes_many_passes_by_what_is_at_work(bench: Bench, sweep: str) -> None:
    server = await bench.server()
    job = await bench.enqueue()
    batch = uuid4()
    if sweep == "rescue":
        await bench.claim("w1", server)
        await bench.let_leases_run_out()
    if sweep == "pause":
        await bench.rows(
            "insert into genflow.batches values (%s, 1, 'b', 1, genflow.clock(), genflow.clock() + interval '1 h')"
            " returning 1",
            batch,
        )
        await bench.rows("update genflow.jobs set batch_id = %s returning 1", batch)
    await bench.worker("w1")
    name, params = {
        "rescue": ("rescue", {"lease_s": 0.0, "limit": 10, "error": "{}"}),
        "claim": ("claim_unbound", {
            "server": server, "limit": 1, "slots": 2, "worker": bench.worker_ids["w1"], "lease_s": 30.0, "classes": [0],
            "elsewhere": [False], "bigger": [None],
        }),
        "pause": ("batch_pause", {"batch": batch, "tenant": 1, "limit": 10}),
    }[sweep]  # fmt: skip
    async with bench.pool.connection() as first, first.transaction():
        await first.execute(
            "update genflow.jobs set lease_until = genflow.clock() + interval '1 h' where id = %s", [job]
        )
        assert await run(bench, name, params) == []
    if sweep == "rescue":
        assert await run(bench, name, params) == [], "it was renewed meanwhile"
    else:
        assert [row["id"] for row in await run(bench, name, params)] == [job]


async def test_one_key_sent_twice_at_once_is_one_job(bench: Bench) -> None:
    async with bench.pool.connection() as first, first.transaction():
        await first.execute(
            "insert into genflow.job_keys values (1, 'submit', 'k', %s, %s, genflow.clock() + interval '1 h')",
            [LOW, b"hash"],
        )
        second = asyncio.create_task(bench.enqueue(key="k"))
        await waits_for_a_lock(bench, first_line("enqueue"))
    await asyncio.gather(second, return_exceptions=True)
    assert await bench.rows("select 1 from genflow.jobs") == [], "the key leads to the first one's job"


async def test_clean_up_behind_an_upload_leaves_its_bytes(bench: Bench) -> None:
    digest = b"b" * 32
    await bench.rows(
        "insert into genflow.blobs (hash, sha256, size, touched_at) values (%s, '', 1, '-infinity') returning 1", digest
    )
    take = {"grace_s": 0.0, "lease_s": 60.0, "limit": 10}
    async with bench.pool.connection() as first, first.transaction():
        await first.execute("update genflow.blobs set touched_at = genflow.clock() + interval '1 h'")
        assert await run(bench, "take_blobs", take) == [], "the locked row is passed by"
    assert await run(bench, "take_blobs", take) == [], "it was touched meanwhile"


async def test_two_that_lock_the_same_rows_the_other_way_round_do_not_deadlock(bench: Bench) -> None:
    """Both go by id, whatever order they were told, so that one waits before it has anything the other wants."""
    beat, (low, high) = await two_held(bench)
    turned = beat | {"jobs": [low, high]}
    async with bench.pool.connection() as gate, gate.transaction():
        await gate.execute("select 1 from genflow.jobs where id = %s for update", [low])
        both = [asyncio.create_task(run(bench, "heartbeat", params)) for params in (beat, turned)]
        await waits_for_a_lock(bench, first_line("heartbeat"), times=2)
    try:
        seen = await asyncio.gather(*both)
    except psycopg.errors.DeadlockDetected:
        pytest.fail("two heartbeats deadlocked")
    assert [len(rows) for rows in seen] == [2, 2]
