"""Which server a queued job goes to: what it needs, where it failed before, and what else is there."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from genflow.failures import Policy, failure
from genflow.jobs import State
from genflow.queue import Abilities, Registry
from genflow.queue.records import NewJob
from genflow.queue.statements import statement
from tests.queue.conftest import Bench, waits_for_a_lock


async def fails_on(
    bench: Bench, server: int, *, avoid: bool = False, min_vram: int | None = None, code: str = "run_timeout"
) -> None:
    """One attempt of the next job fails on this server, and the job is queued again."""
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.end_attempt(
        hold, state=State.QUEUED, no=intent.no, failure=failure(code, "x"), avoid=avoid, min_vram=min_vram
    )


async def seen_with(bench: Bench, server: int, models: Sequence[str] | None, *, nodes: str = "") -> None:
    """A live worker saw this server healthy, with these checkpoints and more nodes; None: it doesn't say."""
    digest = None
    await bench.worker("w1")
    registry = Registry(bench.writer, bench.worker_ids["w1"])
    if models is not None:
        info: dict[str, Any] = {"Loader": {"input": {"required": {"ckpt_name": [list(models), {}]}}}}
        body = json.dumps(info | {name: {} for name in nodes.split()})
        digest = hashlib.sha256(body.encode()).digest()
        await registry.save_object_info(digest, body)
    await registry.probed(server, url=f"http://{server}", healthy=True, capabilities_hash=digest)


def wants(model: str, *nodes: str) -> str:
    """A workflow that loads this model and has these nodes."""
    graph = {"1": {"class_type": "Loader", "inputs": {"ckpt_name": model}}}
    return json.dumps(graph | {name: {"class_type": name, "inputs": {}} for name in nodes})


async def claims(bench: Bench, server: int, *, limit: int = 1, abilities: Abilities | None = None) -> list[UUID]:
    """The jobs that a worker which just looked claims for a server."""
    abilities = abilities or Abilities(bench.writer)
    await abilities.look()
    ledger = await bench.worker("w1")
    claimed = await ledger.claim_unbound(server, slots=64, limit=limit, able=abilities.of(server))
    return [claim.job_id for claim, _ in claimed]


async def test_what_a_retry_avoids_is_remembered_until_something_worse_is_known(bench: Bench) -> None:
    small, other = await bench.server("small"), await bench.server("other")
    job = await bench.enqueue()
    await fails_on(bench, small, avoid=True, min_vram=8_000)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (small, 8_000)
    await fails_on(bench, other)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (small, 8_000), "a plain failure says nothing of the server"
    await fails_on(bench, other, avoid=True, min_vram=4_000)
    row = await bench.row(job)
    assert (row["avoid_id"], row["min_vram"]) == (other, 8_000)


async def test_a_job_goes_only_where_its_model_is(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    await seen_with(bench, one, ["a"])
    await seen_with(bench, two, ["a", "b"])
    only_two = await bench.enqueue(workflow=wants("b"))
    both = await bench.enqueue(workflow=wants("a"))
    assert await claims(bench, one, limit=9) == [both]
    assert await claims(bench, two, limit=9) == [only_two]


async def test_jobs_of_one_need_are_one_class_written_with_the_first(bench: Bench) -> None:
    await seen_with(bench, await bench.server(), ["a"])
    await bench.enqueue()
    for _ in range(3):
        await bench.enqueue(workflow=wants("a"))
    classes = await bench.rows("select class_id, count(*) from genflow.jobs group by 1 order by 1")
    assert [row["count"] for row in classes] == [1, 3]
    assert classes[0]["class_id"] == 0, "it needs nothing"
    assert len(await bench.rows("select 1 from genflow.classes")) == 2


async def test_many_jobs_at_once_have_their_classes_too(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    await seen_with(bench, one, ["a"])
    await seen_with(bench, two, ["b"])
    jobs = [NewJob(id=uuid4(), workflow=wants(model), body_hash=b"", policy=Policy()) for model in "aabab"]
    await bench.queue.enqueue_many(jobs, scope="file")
    assert await claims(bench, two, limit=9) == [jobs[2].id, jobs[4].id]
    assert await claims(bench, one, limit=9) == [jobs[0].id, jobs[1].id, jobs[3].id]


async def test_two_that_write_one_class_at_once_agree_on_its_number(bench: Bench) -> None:
    await seen_with(bench, await bench.server(), ["a", "b"])
    asked = {"hashes": [b"x", b"y"], "needs": ["{}", "{}"]}
    async with bench.pool.connection() as connection, connection.transaction():
        first = await (await connection.execute(statement("classes_of"), asked)).fetchall()
        second = asyncio.create_task(bench.writer.write("classes_of", asked | {"hashes": [b"y", b"x"]}))
        await waits_for_a_lock(bench, "-- The numbers of these classes")
    numbers = {bytes(row["needs_hash"]): row["id"] for row in first}
    assert {bytes(row["needs_hash"]): row["id"] for row in await second} == numbers
    assert {bytes(row["needs_hash"]): row["id"] for row in await bench.writer.write("classes_of", asked)} == numbers


async def test_order_over_classes_is_that_of_the_queue(bench: Bench) -> None:
    server = await bench.server()
    await seen_with(bench, server, ["a", "b", "c"])
    jobs = [await bench.enqueue(workflow=wants("abc"[place * 2 % 3])) for place in range(9)]
    await bench.rows("update genflow.jobs set priority = -1 where id = %s returning 1", jobs[7])
    assert await claims(bench, server, limit=4) == [jobs[7], *jobs[:3]]
    assert await claims(bench, server, limit=9) == [jobs[3], jobs[4], jobs[5], jobs[6], jobs[8]]


async def test_the_first_job_is_found_in_whatever_class_it_is(bench: Bench) -> None:
    server = await bench.server()
    models = [f"m{number}" for number in range(40)]
    await seen_with(bench, server, models)
    jobs = [await bench.enqueue(workflow=wants(model)) for model in models]
    await bench.rows("update genflow.jobs set priority = -1 where id = %s returning 1", jobs[-1])
    assert await claims(bench, server) == [jobs[-1]]


async def test_a_server_of_which_nothing_is_known_may_try_everything(bench: Bench) -> None:
    known, silent = await bench.server("known"), await bench.server("silent")
    await seen_with(bench, known, ["a"])
    job = await bench.enqueue(workflow=wants("a"))
    await seen_with(bench, silent, None)
    assert await claims(bench, silent) == [job]


async def test_a_model_that_is_there_later_is_found(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    await seen_with(bench, one, ["a"])
    await seen_with(bench, two, [])
    job = await bench.enqueue(workflow=wants("a"))
    await seen_with(bench, one, [])
    abilities = Abilities(bench.writer)
    assert await claims(bench, one, abilities=abilities) == await claims(bench, two, abilities=abilities) == []
    await seen_with(bench, two, ["a"])
    assert await claims(bench, two, abilities=abilities) == [job]


async def test_a_look_says_that_nothing_waits_only_where_it_saw_all_classes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genflow.queue.abilities.CLASSES", 2)
    server = await bench.server()
    await seen_with(bench, server, ["a", "b"])
    abilities = Abilities(bench.writer)
    assert await abilities.look() is False
    for model in ("a", "b"):
        await bench.enqueue(workflow=wants(model))
    assert await abilities.look() is True
    assert await abilities.look() is True, "no class comes after those two, and they are still there"
    assert len(await claims(bench, server, limit=2, abilities=abilities)) == 2
    assert [await abilities.look() for _ in range(2)][-1] is False


async def test_a_class_that_no_server_can_run_waits_and_says_why(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    await seen_with(bench, one, ["a"])
    await seen_with(bench, two, ["b"], nodes="Rare")
    job = await bench.enqueue(workflow=wants("a", "Rare"))
    abilities = Abilities(bench.writer)
    with capture_logs() as logs:
        for _ in range(3):
            await abilities.look()
    assert abilities.of(one) == abilities.of(two) == []
    told = [line for line in logs if line["event"] == "no_server_is_able"]
    assert [(line["job"], line["why"]) for line in told] == [
        (str(job), "no known server can run it; the closest lacks a (ckpt_name of Loader)")
    ], "once"
    story = await bench.queue.story(job)
    assert story is not None
    assert story["waits_because"] == "no known server can run it; the closest lacks a (ckpt_name of Loader)"
    await seen_with(bench, one, ["a"], nodes="Rare")
    story = await bench.queue.story(job)
    assert story is not None
    assert story["waits_because"] is None
    assert await claims(bench, one) == [job]


async def test_a_job_avoids_the_server_of_its_failure_while_another_could_take_it(bench: Bench) -> None:
    bad, good = await bench.server("bad"), await bench.server("good")
    await seen_with(bench, bad, ["a"])
    job = await bench.enqueue()
    await fails_on(bench, bad, avoid=True)
    assert await claims(bench, bad) == [job], "there is no other"
    await bench.rows("update genflow.jobs set state = 2, worker_id = null, lease_until = now() returning 1")
    await seen_with(bench, good, ["a"])
    assert await claims(bench, bad) == []
    await bench.rows("update genflow.servers set state = 3 where id = %s returning 1", good)
    assert await claims(bench, bad) == [job], "the other is draining"
    await bench.rows("update genflow.jobs set state = 2, worker_id = null, lease_until = now() returning 1")
    await bench.rows("update genflow.servers set state = 1 where id = %s returning 1", good)
    assert await claims(bench, good) == [job]


async def test_a_server_that_nobody_saw_lately_keeps_no_job_from_another(bench: Bench) -> None:
    bad, gone = await bench.server("bad"), await bench.server("gone")
    await seen_with(bench, bad, ["a"])
    await seen_with(bench, gone, ["a"])
    job = await bench.enqueue()
    await fails_on(bench, bad, avoid=True)
    assert await claims(bench, bad) == []
    await bench.rows(
        "update genflow.worker_servers set seen_at = seen_at - interval '1 minute' where server_id = %s returning 1",
        gone,
    )
    assert await claims(bench, bad) == [job]


async def test_a_wish_for_another_server_is_given_up_after_a_while(bench: Bench) -> None:
    bad, full = await bench.server("bad", vram=8), await bench.server("full", vram=24)
    await seen_with(bench, bad, ["a"])
    await seen_with(bench, full, ["a"])
    job = await bench.enqueue()
    await fails_on(bench, bad, avoid=True, min_vram=8)
    assert await claims(bench, bad) == []
    await bench.rows("update genflow.jobs set lease_until = now() - interval '6 minutes' returning 1")
    assert await claims(bench, bad) == [job]


async def test_after_out_of_memory_a_bigger_server_is_better(bench: Bench) -> None:
    small, same = await bench.server("small", vram=8), await bench.server("same", vram=8)
    big = await bench.server("big", vram=24)
    for server in (small, same):
        await seen_with(bench, server, ["a"])
    job = await bench.enqueue()
    await fails_on(bench, small, min_vram=8)
    assert await claims(bench, same) == [job], "there is no bigger one"
    await bench.rows("update genflow.jobs set state = 2, worker_id = null, lease_until = now() returning 1")
    await seen_with(bench, big, ["a"])
    assert await claims(bench, small) == await claims(bench, same) == []
    assert await claims(bench, big) == [job]


async def test_a_claim_names_the_server_of_the_attempt_before_unless_it_is_to_be_avoided(bench: Bench) -> None:
    one, two = await bench.server("one"), await bench.server("two")
    ledger = await bench.worker("w1")

    async def named() -> int | None:
        [(claim, hold)] = await ledger.claim_unbound(two, slots=2, limit=1)
        await ledger.release(hold)
        return claim.previous_id

    await bench.enqueue()
    assert await named() is None
    await fails_on(bench, one)
    assert await named() == one
    await bench.rows("update genflow.servers set state = 2 where id = %s returning 1", one)
    assert await named() is None, "it is quarantined"
    await bench.rows("update genflow.servers set state = 1 where id = %s returning 1", one)
    await bench.rows("update genflow.jobs set avoid_id = %s returning 1", one)
    assert await named() is None


async def test_a_claim_names_the_server_that_has_the_inputs_before_that_of_the_last_attempt(bench: Bench) -> None:
    one, two, three = await bench.server("one"), await bench.server("two"), await bench.server("three")
    ledger = await bench.worker("w1")
    await bench.enqueue()
    [hold] = await bench.claim("w1", one)
    await ledger.upload_done(hold, server_id=one, boot=None, files=[("a.png", b"h" * 32)])
    await ledger.release(hold)
    await fails_on(bench, two)
    [(claim, hold)] = await ledger.claim_unbound(three, slots=2, limit=1)
    assert (claim.previous_id, claim.uploaded) == (one, True)
    await ledger.release(hold)
    await bench.rows("update genflow.jobs set avoid_id = %s returning 1", one)
    [(claim, hold)] = await ledger.claim_unbound(three, slots=2, limit=1)
    assert (claim.previous_id, claim.uploaded) == (two, False)
    await ledger.release(hold)
    stop = "insert into genflow.chores (kind, server_id, job_id, submit_no, due_at) values ('stop', %s, %s, 1, now())"
    await bench.rows(stop + " returning 1", two, uuid4())
    [(claim, _)] = await ledger.claim_unbound(three, slots=2, limit=1)
    assert claim.previous_id is None, "what was given up there is to be stopped first"


async def test_more_classes_than_one_look_holds_are_all_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await bench.server()
    models = [f"m{number}" for number in range(7)]
    await seen_with(bench, server, models)
    jobs = [await bench.enqueue(workflow=wants(model)) for model in models]
    monkeypatch.setattr("genflow.queue.abilities.CLASSES", 3)
    abilities = Abilities(bench.writer)
    for _ in range(3):
        await abilities.look()
    ledger = await bench.worker("w1")
    claimed = await ledger.claim_unbound(server, slots=64, limit=64, able=abilities.of(server))
    assert {claim.job_id for claim, _ in claimed} == set(jobs)


FIFTY_THOUSAND = """
insert into genflow.jobs (id, state, class_id, priority, created_at, expires_at, server_id, lease_until)
select gen_random_uuid(), 2, mod(n, 40), mod(n, 3), now(), now() + interval '1 day', null, null
from generate_series(1, 50000) as n
returning 1
"""


@pytest.mark.parametrize("statistics", ["none", "old", "fresh"])
async def test_a_claim_reads_a_few_rows_of_each_class_however_long_the_queue_is(bench: Bench, statistics: str) -> None:
    server = await bench.server()
    if statistics == "old":
        await bench.enqueue()
        async with bench.pool.connection() as connection:
            await connection.execute("analyze genflow.jobs")
    await bench.rows(FIFTY_THOUSAND)
    async with bench.pool.connection() as connection:
        if statistics == "fresh":
            await connection.execute("analyze genflow.jobs")
        plans = []
        asked: dict[str, dict[str, Any]] = {
            "claim_unbound": {
                "server": server, "slots": 2, "limit": 1, "worker": uuid4(), "lease_s": 30.0,
                "classes": list(range(40)), "elsewhere": [False] * 40, "bigger": [None] * 40,
            },
            "queued_classes": {"after": -1, "limit": 200},
        }  # fmt: skip
        for name, params in asked.items():
            cursor = await connection.execute("explain (analyze, format json) " + statement(name), params)
            row = await cursor.fetchone()
            assert row is not None
            plans.append(row["QUERY PLAN"][0]["Plan"])
    for plan in plans:
        read = [node for node in _nodes(plan) if node.get("Relation Name") == "jobs" and "Scan" in node["Node Type"]]
        assert read, "it reads jobs"
        assert [node["Node Type"] for node in read if node["Node Type"] == "Seq Scan"] == []
        rows = sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in read
        )
        assert rows <= 40 * 3 + 40 + 2, f"{rows} rows of 50,000"


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]
