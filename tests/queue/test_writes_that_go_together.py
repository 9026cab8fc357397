"""Writes of one worker's jobs that share a statement: what is wrong with one harms no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg

from genflow.jobs import State
from genflow.postgres.pool import open_pool
from genflow.protocol import HistoryEntry
from genflow.queue import CoalescingWriter, DirectWriter, Hold, JobCanceled, LeaseLost, Ledger, SlotTaken
from genflow.queue.ledger import Intent
from genflow.queue.writer import Row
from tests.queue.conftest import ENTRY, TIMING, Bench, output, waits_for_a_lock
from tests.support.relay import relayed

TOO_BIG = HistoryEntry("success", None, {}, None, 2**63, 0, {})
"""Postgres itself refuses this one's time."""


class Counting(DirectWriter):
    """Says how many rows each statement had."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows: list[int] = []

    async def write_rows(
        self, name: str, common: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> list[Row | None]:
        self.rows.append(len(rows))
        return await super().write_rows(name, common, rows)


def gathering(bench: Bench, worker: str, direct: DirectWriter) -> Ledger:
    """This worker's ledger, with gathered writes."""
    return Ledger(CoalescingWriter(direct), bench.worker_ids[worker], TIMING, retention_s=3600.0)


async def claimed(bench: Bench, server: int, jobs: int, worker: str = "w1") -> list[Hold]:
    """So many held jobs, in the order of ids."""
    for _ in range(jobs):
        await bench.enqueue()
    return sorted(await bench.claim(worker, server, limit=jobs, slots=8), key=lambda hold: hold.job_id)


async def intents(ledger: Ledger, holds: Sequence[Hold], server: int) -> list[Intent]:
    return await asyncio.gather(
        *(ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=8) for hold in holds)
    )


@asynccontextmanager
async def impatient(database: str) -> AsyncIterator[Counting]:
    """A writer that waits for no lock for long."""
    async with await open_pool(database, 1, 4, lock_timeout_s=0.4) as pool:
        yield Counting(pool)


async def test_what_waits_at_the_same_time_goes_out_together_and_a_single_row_at_once(bench: Bench) -> None:
    server = await bench.server(slots=8)
    first, *others = await claimed(bench, server, 5)
    direct = Counting(bench.pool)
    ledger = gathering(bench, "w1", direct)
    async with bench.pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from genflow.jobs where id = %s for update", [first.job_id])
        alone = asyncio.create_task(ledger.receipt(first, 1, number=0.0, client_id="c"))
        await waits_for_a_lock(bench, "-- Checkpoint: the servers took")
        company = [asyncio.create_task(ledger.receipt(hold, 1, number=0.0, client_id="c")) for hold in others]
    assert await asyncio.gather(alone, *company) == [False] * 5
    assert direct.rows == [1, 4]


async def test_a_statement_has_no_more_rows_than_its_bound(bench: Bench) -> None:
    server = await bench.server(slots=8)
    holds = await claimed(bench, server, 5)
    direct = Counting(bench.pool)
    ledger = Ledger(
        CoalescingWriter(direct, rows_at_once=2), bench.worker_ids["w1"], TIMING, retention_s=3600.0
    )  # fmt: skip
    assert sorted(intent.no for intent in await intents(ledger, holds, server)) == [1] * 5
    assert direct.rows == [2, 2, 1]


async def test_several_intents_for_one_server_take_a_slot_each_until_none_is_left(bench: Bench) -> None:
    server = await bench.server(slots=2)
    for _ in range(3):
        await bench.enqueue()
    holds = [*await bench.claim("w1", server, slots=8, limit=3)]
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    told = await asyncio.gather(
        *(ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2) for hold in holds),
        return_exceptions=True,
    )
    assert direct.rows == [3]
    assert told[:2] == [Intent(1, 1), Intent(1, 1)]
    assert isinstance(told[2], SlotTaken)
    assert {row["slot"] for row in await bench.rows("select slot from genflow.submits")} == {1, 2}


async def test_a_poisoned_row_harms_nobody_else(bench: Bench) -> None:
    server = await bench.server(slots=8)
    holds = await claimed(bench, server, 4)
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    numbers = await intents(ledger, holds, server)
    texts = ["a", "b\0", "c\ud800", "d"]  # psycopg refuses the second, Python the third
    told = await asyncio.gather(
        *(ledger.receipt(hold, 1, number=0.0, client_id=text) for hold, text in zip(holds, texts, strict=True)),
        return_exceptions=True,
    )
    assert [type(each) for each in told] == [bool, psycopg.DataError, UnicodeEncodeError, bool]
    entries = [ENTRY, ENTRY, TOO_BIG, ENTRY]
    ended = await asyncio.gather(
        *(
            ledger.run_ended(hold, intent.no, entry)
            for hold, intent, entry in zip(holds, numbers, entries, strict=True)
        ),
        return_exceptions=True,
    )
    assert [isinstance(each, psycopg.DataError) for each in ended] == [False, False, True, False]
    assert direct.rows == [4, 4, 4]
    steps = await bench.rows("select step, token, worker_id from genflow.jobs order by id")
    assert [row["step"] for row in steps] == [3, 3, 0, 3]
    assert not any(hold.lost for hold in holds)
    assert await bench.rows("select 1 from genflow.jobs where worker_id is null") == []


async def test_a_value_past_a_limit_of_postgres_is_not_taken_for_an_outage(bench: Bench) -> None:
    server = await bench.server(slots=8)
    holds = await claimed(bench, server, 3)
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    await intents(ledger, holds, server)
    long = "".join(str(uuid4()) for _ in range(300))  # no index takes it
    bad = asyncio.create_task(ledger.finish(holds[0], [replace(output(), node_id=long)]))
    async with asyncio.timeout(10):
        told = await asyncio.gather(*(ledger.finish(hold, [output()]) for hold in holds[1:]))
    assert told == [State.SUCCEEDED] * 2
    assert not bad.done(), "it is sent again, by itself"
    bad.cancel()
    assert direct.rows == [3, 3]


async def test_a_row_that_stays_locked_is_waited_for_by_its_own_job_alone(bench: Bench, database: str) -> None:
    server = await bench.server(slots=8)
    locked, *others = await claimed(bench, server, 4)
    async with impatient(database) as direct, bench.pool.connection() as connection:
        ledger = gathering(bench, "w1", direct)
        async with connection.transaction():
            await connection.execute("select 1 from genflow.jobs where id = %s for update", [locked.job_id])
            waits = asyncio.create_task(ledger.receipt(locked, 1, number=0.0, client_id="c"))
            told = [asyncio.create_task(ledger.receipt(hold, 1, number=0.0, client_id="c")) for hold in others]
            assert await asyncio.gather(*told) == [False] * 3
            again = await asyncio.gather(*(ledger.running(hold, 1, deadline_s=60) for hold in others))
            assert again == [False] * 3
            assert not waits.done()
        assert await waits is False
        assert direct.rows == [4, 3]


async def test_a_lost_lease_and_a_cancel_are_told_to_their_own_jobs(bench: Bench) -> None:
    server = await bench.server(slots=8)
    kept, lost, canceled, last = holds = await claimed(bench, server, 4)
    await bench.rows("update genflow.jobs set token = token + 1 where id = %s returning 1", lost.job_id)
    await bench.queue.cancel(canceled.job_id)
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    for write in (
        lambda hold: ledger.upload_done(hold, server_id=server, boot=None, files=[(f"{hold.job_id}/a.png", b"h" * 32)]),
        lambda hold: ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=8),
        lambda hold: ledger.receipt(hold, 1, number=0.0, client_id="c"),
        lambda hold: ledger.running(hold, 1, deadline_s=60),
        lambda hold: ledger.run_ended(hold, 1, ENTRY),
        lambda hold: ledger.finish(hold, [output()]),
    ):
        for hold in holds:
            hold.lost = False
        told = await asyncio.gather(*(write(hold) for hold in holds), return_exceptions=True)
        assert [type(each) for each in (told[1], told[2])] == [LeaseLost, JobCanceled]
        assert not any(isinstance(each, BaseException) for each in (told[0], told[3]))
    assert direct.rows == [4] * 6
    states = {row["id"]: State(row["state"]) for row in await bench.rows("select id, state from genflow.jobs")}
    assert [states[hold.job_id] for hold in holds] == [State.SUCCEEDED, State.HELD, State.CANCELED, State.SUCCEEDED]
    owners = await bench.rows("select job_id from genflow.assets union select job_id from genflow.server_file_refs")
    assert {row["job_id"] for row in owners} == {kept.job_id, last.job_id}


async def test_jobs_that_bring_the_same_bytes_and_others_end_with_their_own_files(bench: Bench) -> None:
    server = await bench.server(slots=8)
    _, one, two = holds = await claimed(bench, server, 3)
    ledger = gathering(bench, "w1", Counting(bench.pool))
    await intents(ledger, holds, server)
    files = [[], [output("a.png")], [output("b.png"), replace(output("c.png"), index=1)]]
    told = await asyncio.gather(*(ledger.finish(hold, each) for hold, each in zip(holds, files, strict=True)))
    assert told == [State.SUCCEEDED] * 3
    kept = await bench.rows("select job_id, name from genflow.assets order by name")
    assert [(row["job_id"], row["name"]) for row in kept] == [
        (one.job_id, "a.png"), (two.job_id, "b.png"), (two.job_id, "c.png")
    ]  # fmt: skip


async def test_a_blob_that_is_being_deleted_stops_only_the_job_that_brought_it(bench: Bench) -> None:
    server = await bench.server(slots=8)
    one, two = holds = await claimed(bench, server, 2)
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    await intents(ledger, holds, server)
    going = output()
    await bench.rows("insert into genflow.blobs (hash, sha256, size, state) values (%s, %s, 12, 2) returning 1",
                     going.hash, going.sha256)  # fmt: skip
    fresh = replace(output(), hash=b"f" * 32)
    told = await asyncio.gather(ledger.finish(one, [fresh, going]), ledger.finish(two, [replace(fresh, id=uuid4())]))
    assert list(told) == [None, State.SUCCEEDED]
    assert direct.rows == [2, 2]
    assert State((await bench.row(one.job_id))["state"]) is State.HELD
    assert [row["job_id"] for row in await bench.rows("select job_id from genflow.assets")] == [two.job_id]


async def test_an_unknown_commit_is_read_back_for_each(bench: Bench, database: str) -> None:
    server = await bench.server(slots=8)
    holds = await claimed(bench, server, 3)
    async with relayed(database) as (conninfo, relay), await open_pool(conninfo, 1, 4) as pool:
        ledger = gathering(bench, "w1", direct := Counting(pool))
        relay.lose_the_answer_to(b"write submits down")
        assert await intents(ledger, holds, server) == [Intent(1, 1)] * 3
        assert relay.lost.is_set()
        assert len(await bench.rows("select 1 from genflow.submits")) == 3
        checkpoints: dict[bytes, Callable[[Hold], Awaitable[bool]]] = {
            b"the servers took": lambda hold: ledger.receipt(hold, 1, number=0.0, client_id="c"),
            b"were seen running": lambda hold: ledger.running(hold, 1, deadline_s=60),
            b"runs ended well": lambda hold: ledger.run_ended(hold, 1, ENTRY),
        }
        for word, write in checkpoints.items():
            relay.lose_the_answer_to(word)
            assert await asyncio.gather(*(write(hold) for hold in holds)) == [False] * 3
            assert relay.lost.is_set()
        relay.lose_the_answer_to(b"the results of jobs")
        told = await asyncio.gather(*(ledger.finish(hold, [output()]) for hold in holds), return_exceptions=True)
        assert relay.lost.is_set()
        assert [type(each) for each in told] == [LeaseLost] * 3, "over, and no longer anybody's"
        assert direct.outages == 5
    rows = await bench.rows("select j.state, (select count(*) from genflow.assets as a where a.job_id = j.id) as files"
                            " from genflow.jobs as j")  # fmt: skip
    assert [(State(row["state"]), row["files"]) for row in rows] == [(State.SUCCEEDED, 1)] * 3


async def test_rows_are_locked_in_the_order_of_ids_whatever_order_they_came_in(bench: Bench) -> None:
    server = await bench.server(slots=8)
    holds = await claimed(bench, server, 4)
    ledger = gathering(bench, "w1", Counting(bench.pool))
    async with bench.pool.connection() as other, bench.pool.connection() as blocking:
        async with blocking.transaction():
            await blocking.execute("select 1 from genflow.jobs where id = %s for update", [holds[0].job_id])
            writes = [asyncio.create_task(ledger.receipt(hold, 1, number=0.0, client_id="c")) for hold in holds[::-1]]
            await waits_for_a_lock(bench, "-- Checkpoint: the servers took")
            for hold in holds[1:]:
                await other.execute("select 1 from genflow.jobs where id = %s for update nowait", [hold.job_id])
        assert await asyncio.gather(*writes) == [False] * 4


async def test_two_workers_that_take_the_same_slots_never_deadlock(bench: Bench) -> None:
    servers = [await bench.server(name, slots=8) for name in ("gpu0", "gpu1")]
    [stranger] = await claimed(bench, servers[0], 1, "w0")
    writes, writers = [], []
    async with bench.pool.connection() as blocking, blocking.transaction():
        holds = {name: await claimed(bench, servers[0], 2, name) for name in ("w1", "w2")}
        await blocking.execute(
            "insert into genflow.submits (job_id, no, uuid, attempt, server_id, slot, token, state, created_at)"
            " values (%s, 9, gen_random_uuid(), 1, %s, 1, 1, 1, now())",
            [stranger.job_id, servers[0]],
        )
        for name, order in (("w1", servers), ("w2", servers[::-1])):
            writers.append(Counting(bench.pool))
            ledger = gathering(bench, name, writers[-1])
            writes += [
                asyncio.create_task(ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=1))
                for hold, server in zip(holds[name], order, strict=True)
            ]
        await waits_for_a_lock(bench, "-- Write submits down", times=2)
        await blocking.execute("delete from genflow.submits where no = 9")
    told = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(each).__name__ for each in told) == ["Intent", "Intent", "SlotTaken", "SlotTaken"]
    assert [direct.outages for direct in writers] == [0, 0], "a deadlock is sent again like an outage"


async def test_a_caller_that_is_cut_off_costs_nobody_else_the_write(bench: Bench) -> None:
    server = await bench.server(slots=8)
    first, gone, other = await claimed(bench, server, 3)
    ledger = gathering(bench, "w1", direct := Counting(bench.pool))
    async with bench.pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from genflow.jobs where id = %s for update", [first.job_id])
        alone = asyncio.create_task(ledger.receipt(first, 1, number=0.0, client_id="c"))
        await waits_for_a_lock(bench, "-- Checkpoint: the servers took")
        waits = asyncio.create_task(ledger.receipt(gone, 1, number=0.0, client_id="c"))
        beside = asyncio.create_task(ledger.receipt(other, 1, number=0.0, client_id="c"))
        await asyncio.sleep(0)
        alone.cancel()
        waits.cancel()
    assert await beside is False
    assert direct.rows == [1, 1]
