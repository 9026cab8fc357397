"""A dead letter is requeued as a new job, once unless asked for again; whoever looks for it is led to the newest."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.errors import GenflowError
from genflow.failures import Policy, failure
from genflow.jobs import State
from genflow.queue import AlreadyRequeued, DeadFilter, Mended, Queue
from genflow.queue.dead import GroupBy
from genflow.queue.queue import QueueFull
from genflow.queue.records import KeyInUse, NewJob
from genflow.storage.store import StoredBlob
from tests.queue.conftest import Bench, waits_for_a_lock

SEED = 2**64 - 1
WORKFLOW = json.dumps(
    {
        "3": {"class_type": "KSampler", "inputs": {"seed": SEED, "cfg": 6.5}},
        "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "out"}},
    }
)


async def dead(
    bench: Bench, code: str = "node_execution_error", *, server: str = "gpu0", node: str | None = None, **fields: Any
) -> UUID:
    """A job that failed for good on this server."""
    job = NewJob(
        **{"id": uuid4(), "workflow": WORKFLOW, "body_hash": b"body", "policy": Policy(max_attempts=3), **fields}
    )
    await bench.queue.enqueue_many([job], scope="file")
    server_id = await bench.server(server)
    [hold] = await bench.claim("w1", server_id)
    ledger = await bench.worker("w1")
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server_id, boot=None, slots=2)
    told = failure(code, f"{code} happened\nand more", node_id="3", node_class=node, traceback=["line 1"])
    await ledger.end_attempt(hold, state=State.FAILED, no=intent.no, attempt=intent.attempt, failure=told)
    return job.id


async def fate(bench: Bench, job: UUID, body: bytes = b"body") -> tuple[str, UUID]:
    """What becomes of a file's row under this id, and the job that it leads to."""
    row = NewJob(id=job, workflow=WORKFLOW, body_hash=body, policy=Policy())
    [arrival] = await bench.queue.enqueue_many([row], scope="file")
    return arrival.fate.value, arrival.job_id


async def test_a_requeue_is_a_new_job_and_the_old_one_stays_failed(bench: Bench) -> None:
    old = await dead(bench, metadata={"row": "7"}, params={"seed": SEED}, priority=4)
    batch = uuid4()
    await bench.rows("update genflow.jobs set batch_id = %s where id = %s returning 1", batch, old)
    before = await bench.row(old)
    new = await bench.queue.dead.requeue(old)
    assert new != old
    job, spec = await bench.row(new), (await bench.rows("select * from genflow.job_specs where job_id = %s", new))[0]
    assert (job["state"], job["attempt"], job["error"]) == (State.QUEUED, 0, None)
    assert (job["priority"], job["batch_id"]) == (4, batch)
    assert (spec["workflow"], spec["metadata"], spec["params"]) == (WORKFLOW, {"row": "7"}, {"seed": SEED})
    assert (spec["policy"]["max_attempts"], spec["requeued_from"], spec["root_id"]) == (3, old, old)
    assert await bench.row(old) == before | {"requeued_as": new}, "the dead letter is marked, and nothing else"

    story = await bench.queue.story(old)
    assert story is not None
    assert (story["requeued_from"], story["root_id"], story["requeued_as"]) == (None, old, new)


async def test_a_second_requeue_names_the_job_that_came_of_the_first(bench: Bench) -> None:
    old = await dead(bench)
    new = await bench.queue.dead.requeue(old)
    with pytest.raises(AlreadyRequeued) as error:
        await bench.queue.dead.requeue(old)
    assert (error.value.status, (error.value.details or {})["job_id"]) == (409, str(new))
    another = await bench.queue.dead.requeue(old, again=True)
    assert (await bench.row(old))["requeued_as"] == another
    assert len(await bench.rows("select 1 from genflow.job_specs where requeued_from = %s", old)) == 2


@pytest.mark.parametrize("again", [False, True])
async def test_two_requeues_at_the_same_time_make_what_they_were_asked_for(bench: Bench, again: bool) -> None:
    old = await dead(bench)
    async with bench.pool.connection() as holder, holder.transaction():
        await holder.execute("select 1 from genflow.jobs where id = %s for update", [old])
        both = asyncio.gather(*(bench.queue.dead.requeue(old, again=again) for _ in range(2)), return_exceptions=True)
        await waits_for_a_lock(bench, "-- Make a new job of a dead letter", times=2)
    made = await both
    rows = await bench.rows("select job_id from genflow.job_specs where requeued_from = %s", old)
    if again:
        assert {row["job_id"] for row in rows} == set(made)
        return
    [row] = rows
    [refused] = [each for each in made if isinstance(each, AlreadyRequeued)]
    assert (refused.details or {})["job_id"] == str(row["job_id"])
    assert row["job_id"] in made


@pytest.mark.parametrize("again", [False, True])
async def test_a_requeue_sent_twice_after_a_lost_answer_makes_one_job(bench: Bench, again: bool) -> None:
    old = await dead(bench)
    write = bench.queue.dead._writer.write

    async def twice(name: str, params: Any) -> Any:
        if name == "requeue":
            await write(name, params)
        return await write(name, params)

    bench.queue.dead._writer.write = twice  # type: ignore[method-assign]
    new = await bench.queue.dead.requeue(old, again=again)
    rows = await bench.rows("select job_id from genflow.job_specs where requeued_from = %s", old)
    assert [row["job_id"] for row in rows] == [new]


async def test_inputs_are_set_and_every_other_number_stays_exact(bench: Bench) -> None:
    old = await dead(bench, params={"seed": SEED, "cfg": 6.5})
    new = await bench.queue.dead.requeue(old, values={"3.cfg": 7, "9.filename_prefix": "b"})
    [spec] = await bench.rows("select * from genflow.job_specs where job_id = %s", new)
    graph = json.loads(spec["workflow"])
    assert (graph["3"]["inputs"], graph["9"]["inputs"]) == ({"seed": SEED, "cfg": 7}, {"filename_prefix": "b"})
    assert spec["set_values"] == {"3.cfg": 7, "9.filename_prefix": "b"}
    assert spec["params"] == {"seed": SEED, "cfg": 7}, "a parameter that said what the input said follows it"
    assert await fate(bench, old) == ("known", new), "a changed input makes no other request of it"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"4.cfg": 7}, "invalid_set"),
        ({"9.filename_prefix": "../b"}, "invalid_workflow"),
        ({"9.filename_prefix": "b\x00"}, "invalid_workflow"),
    ]
    for values, code in wrong:
        with pytest.raises(GenflowError) as error:
            await bench.queue.dead.requeue(old, values=values, again=True)
        assert error.value.code == code
    assert len(await bench.rows("select 1 from genflow.jobs")) == 2


async def test_a_dry_run_makes_nothing(bench: Bench) -> None:
    old = await dead(bench)
    before = await bench.row(old)
    await bench.queue.dead.requeue(old, dry_run=True)
    with pytest.raises(GenflowError):
        await bench.queue.dead.requeue(old, values={"4.x": 1}, dry_run=True)
    assert (await bench.row(old), len(await bench.rows("select 1 from genflow.jobs"))) == (before, 1)


async def test_keys_and_rows_lead_to_the_newest_of_several(bench: Bench) -> None:
    first = await dead(bench)
    assert await fate(bench, first) == ("known", first)
    second = await bench.queue.dead.requeue(first)
    assert await fate(bench, first) == ("known", second)
    await bench.rows("update genflow.jobs set state = 11 where id = %s returning 1", second)
    third = await bench.queue.dead.requeue(second)
    story = await bench.queue.story(third)
    assert story is not None
    assert (story["requeued_from"], story["root_id"]) == (second, first)
    assert await fate(bench, first) == await fate(bench, second) == ("known", third)

    assert set(await bench.queue.dead.purge([first, second])) == {first, second}
    assert await fate(bench, first) == ("known", third), "also where the job itself is gone"

    keyed = await bench.enqueue(key="k", workflow=WORKFLOW)
    await bench.rows("update genflow.jobs set state = 11 where id = %s returning 1", keyed)
    newest = await bench.queue.dead.requeue(keyed)
    with pytest.raises(KeyInUse) as error:
        await bench.enqueue(key="k")
    assert (error.value.details or {})["job_id"] == str(newest)


async def test_a_mended_row_is_known_by_its_new_body(bench: Bench) -> None:
    old = await dead(bench)
    assert (await fate(bench, old, b"mended"))[0] == "other_body"
    text = WORKFLOW.replace("6.5", "5.5")
    new = await bench.queue.dead.requeue(old, mended=Mended(workflow=text, body_hash=b"mended", values={"3.cfg": 5.5}))
    [spec] = await bench.rows("select * from genflow.job_specs where job_id = %s", new)
    assert (spec["workflow"], spec["set_values"]) == (text, {"3.cfg": 5.5})
    assert await fate(bench, old, b"mended") == ("known", new), "the mended file twice runs nothing twice"
    assert (await fate(bench, old))[0] == "other_body"


async def test_a_row_of_a_batch_comes_back_in_its_batch(bench: Bench) -> None:
    old, batch = await dead(bench), uuid4()
    await bench.rows("update genflow.jobs set batch_id = %s where id = %s returning 1", batch, old)
    values = json.dumps({"3.cfg": 6.5, "3.seed": SEED})
    await bench.writer.write(
        "create_batch",
        {"batch": batch, "tenant": 1, "name": "f", "retention_s": 60, "rows": [1, 2], "jobs": [old] * 2,
         "sets": [values] * 2},
    )  # fmt: skip
    await bench.writer.write("batch_pause", {"batch": batch, "tenant": 1, "limit": 9})
    assert (await bench.queue.dead.look(old))["set_values"] == json.loads(values)
    new = await bench.queue.dead.requeue(old, values={"3.cfg": 7})
    aside = await bench.queue.story(new)
    assert aside is not None
    assert (aside["state"], aside["run_at"]) == (State.WAITING, None), "its batch is paused"
    rows = await bench.writer.write("batch_rows", {"batch": batch, "tenant": 1, "after": 0, "limit": 9})
    assert [(row["row_job"], row["id"], row["set"]) for row in rows] == [(old, new, {"3.cfg": 7, "3.seed": SEED})] * 2
    await bench.writer.write("batch_resume", {"batch": batch, "tenant": 1, "limit": 9})
    assert (await bench.row(new))["state"] == State.QUEUED


async def test_inputs_go_along_and_one_that_is_gone_is_named(bench: Bench) -> None:
    asset = await bench.queue.files.add(
        StoredBlob(b"h" * 32, b"s" * 32, 3), name="me.png", type="image", content_type="image/png"
    )
    text = json.dumps(
        {"1": {"class_type": "LoadImage", "inputs": {"image": {"__type": "core/ASSET", "info": {"id": str(asset)}}}}}
    )
    old = await dead(bench, workflow=text, assets=(asset,))
    posted = (await bench.queue.dead.look(old))["posted"]
    assert posted["1"]["inputs"] == {"image": f"genflow/{old}/{(b'h' * 16).hex()}.png"}
    new = await bench.queue.dead.requeue(old)
    assert await bench.rows("select asset_id from genflow.job_assets where job_id = %s", new) == [{"asset_id": asset}]
    await bench.rows("delete from genflow.assets where id = %s returning 1", asset)
    with pytest.raises(GenflowError) as error:
        await bench.queue.dead.requeue(old, again=True)
    assert (error.value.code, (error.value.details or {})["got"]) == ("missing_asset", str(asset))
    assert "is gone" in (await bench.queue.dead.look(old))["posted"]["1"]["inputs"]["image"]


async def test_only_a_dead_letter_can_be_requeued_and_never_past_the_limit(bench: Bench) -> None:
    waits = await bench.enqueue()
    for job, code in ((waits, "not_a_dead_letter"), (uuid4(), "not_found")):
        with pytest.raises(GenflowError) as error:
            await bench.queue.dead.requeue(job)
        assert error.value.code == code
    await bench.queue.cancel(waits)
    old = await dead(bench)
    full = Queue(bench.pool, queue_limit=1, retention_s=60)
    await bench.enqueue()
    with pytest.raises(QueueFull):
        await full.dead.requeue(old)
    assert (await bench.row(old))["requeued_as"] is None


async def test_the_list_is_narrowed_page_by_page_and_counted(bench: Bench) -> None:
    async def found(limit: int = 50, before: Any = None, **wanted: Any) -> list[UUID]:
        rows = await bench.queue.dead.page(DeadFilter(**wanted), limit=limit, before=before)
        return [row["id"] for row in rows]

    ours = [await dead(bench, node="KSampler") for _ in range(3)]
    memory = await dead(bench, "out_of_memory", server="gpu1", node="VAEDecode")
    gone = await dead(bench, "run_timeout", node=None)
    every = [gone, memory, *reversed(ours)]
    assert await found() == every, "the latest first"
    assert await found(limit=2) == every[:2]
    [_, last] = await bench.queue.dead.page(DeadFilter(), limit=2)
    assert await found(before=(last["ended_at"], last["id"])) == every[2:]
    assert (
        await found(failure_class="oom") == await found(code="out_of_memory") == await found(server="gpu1") == [memory]
    )
    assert await found(node_class="KSampler") == every[2:]
    assert await found(says="OUT_OF_MEM") == [memory]
    assert await found(says="%") == [], "no pattern"
    assert await found(batch=uuid4()) == []
    assert await found(since=last["ended_at"]) == every[:2]
    assert await found(until=last["ended_at"]) == every[1:]

    async def counted(by: GroupBy) -> list[tuple[str | None, int, UUID]]:
        rows = await bench.queue.dead.groups(DeadFilter(), by)
        return [(row["key"], row["count"], row["example"]) for row in rows]

    assert await counted(GroupBy.CLASS) == [
        ("permanent", 3, ours[2]), ("oom", 1, memory), ("transient", 1, gone)
    ]  # fmt: skip
    assert await counted(GroupBy.NODE) == [("KSampler", 3, ours[2]), ("VAEDecode", 1, memory), (None, 1, gone)]
    assert await counted(GroupBy.SERVER) == [("gpu0", 4, gone), ("gpu1", 1, memory)]
    assert (await counted(GroupBy.REASON))[0] == ("node_execution_error happened", 3, ours[2])
    assert [key for key, _, _ in await counted(GroupBy.CODE)] == [
        "node_execution_error", "out_of_memory", "run_timeout"
    ]  # fmt: skip

    await bench.queue.dead.requeue(memory)
    assert (await found(), await found(requeued=True)) == ([gone, *every[2:]], [memory])


async def test_a_purge_deletes_dead_letters_alone_and_their_ids_stay_known(bench: Bench) -> None:
    old, kept, waits = await dead(bench), await dead(bench), await bench.enqueue()
    await bench.queue.view(old, watched=True)
    assert await bench.queue.dead.purge([old, waits, uuid4()]) == [old]
    left = {row["id"] for row in await bench.rows("select id from genflow.jobs")}
    assert left == {kept, waits}
    for table in ("job_specs", "submits", "attempts"):
        assert await bench.rows(f"select 1 from genflow.{table} where job_id = %s", old) == []  # noqa: S608
    assert await fate(bench, old) == ("known", old)
    assert await bench.rows("select 1 from genflow.jobs where id = %s", old) == []


async def test_a_dead_letter_tells_what_was_asked_and_what_was_posted(bench: Bench) -> None:
    old = await dead(bench, node="KSampler")
    letter = await bench.queue.dead.look(old)
    assert (letter["class"], letter["code"], letter["node_id"]) == ("permanent", "node_execution_error", "3")
    assert (letter["reason"], letter["message"]) == (
        "node_execution_error happened", "node_execution_error happened\nand more"
    )  # fmt: skip
    assert (letter["traceback"], letter["server"], letter["workflow"]) == (["line 1"], "gpu0", WORKFLOW)
    assert letter["posted"] == {
        "3": {"class_type": "KSampler", "inputs": {"seed": SEED, "cfg": 6.5}},
        "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": f"genflow/{old}/1/out"}},
    }
    await bench.rows("update genflow.submits set state = 12 where job_id = %s returning 1", old)
    assert (await bench.queue.dead.look(old))["posted"] is None, "it was taken back before it left"
    never = await bench.enqueue(workflow=WORKFLOW)
    await bench.rows("update genflow.jobs set state = 11 where id = %s returning 1", never)
    assert (await bench.queue.dead.look(never))["posted"] is None
