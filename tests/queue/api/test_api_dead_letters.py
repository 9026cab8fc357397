"""Dead letters over HTTP: looked for, shown whole, requeued and purged, alone or all that match; nothing by mistake."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.jobs import State
from genflow.queue import Queue
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.queue.test_a_dead_letter_comes_back import SEED, WORKFLOW, dead
from tests.support.api import Client, serving

DEAD = "/genflow/v1/dead-letters"


async def listed(api: Client, query: str = "") -> list[str]:
    answer = await api.get(DEAD + query)
    assert answer.status == 200, answer.body
    return [letter["id"] for letter in answer.json["dead_letters"]]


async def test_the_list_is_narrowed_and_its_cursor_meets_every_one_once(api: Client, bench: Bench) -> None:
    ours = [str(await dead(bench, node="KSampler")) for _ in range(5)]
    memory = str(await dead(bench, "out_of_memory", server="gpu1"))
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await api.get(f"{DEAD}?limit=2{cursor}")).json
        seen += [letter["id"] for letter in page["dead_letters"]]
        if page["next_cursor"] is None:
            break
        await dead(bench)  # what fails meanwhile moves no page
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [memory, *reversed(ours)]
    for query in ("class=oom", "code=out_of_memory", "server=gpu1", "reason=Out_Of", "class=oom&since=1h"):
        assert await listed(api, f"?{query}") == [memory], query
    assert await listed(api, "?node=KSampler") == ours[::-1]
    for query in ("class=lost", f"batch={uuid4()}", "until=1h", "requeued=true"):
        assert await listed(api, f"?{query}") == [], query
    first = (await api.get(f"{DEAD}?class=oom")).json["dead_letters"][0]
    assert (first["class"], first["code"], first["reason"]) == ("oom", "out_of_memory", "out_of_memory happened")
    assert (first["node_id"], first["server"], first["attempts"]) == ("3", "gpu1", 1)
    groups = (await api.get(f"{DEAD}?group=class&server=gpu1")).json
    assert groups["by"] == "class"
    [group] = groups["groups"]
    assert (group["key"], group["count"], group["example"]) == ("oom", 1, memory)


async def test_a_query_that_means_nothing_is_named(api: Client) -> None:
    for query, code, field in [
        ("since=yesterday", "invalid_request", "since"),
        ("until=2026-01-01T00:00:00", "invalid_request", "until"),
        ("class=bad", "invalid_request", "class"),
        ("code=", "invalid_request", "code"),
        ("batch=7", "invalid_request", "batch"),
        ("requeued=yes", "invalid_request", "requeued"),
        ("group=day", "invalid_request", "group"),
        ("clas=oom", "invalid_request", "clas"),
        ("code=a&code=b", "invalid_request", "code"),
        ("limit=0", "invalid_request", "limit"),
        ("cursor=5", "invalid_cursor", "cursor"),
    ]:
        answer = await api.get(f"{DEAD}?{query}")
        assert (answer.status, answer.code, answer.details["field"]) == (400, code, field), query


async def test_one_is_shown_whole_also_by_its_first_digits(api: Client, bench: Bench) -> None:
    old = await dead(bench, node="KSampler", params={"seed": SEED})
    await bench.rows(
        "update genflow.attempts set started_at = ended_at - interval '2.5 s', gpu_ms = 1500"
        " where job_id = %s returning 1",
        old,
    )
    answer = await api.get(f"{DEAD}/{old}")
    assert answer.status == 200
    letter = answer.json
    [attempt] = letter["attempts"]
    assert (attempt["server"], attempt["seconds"], attempt["gpu_seconds"]) == ("gpu0", 2.5, 1.5)
    assert (letter["node_class"], letter["traceback"], letter["attempts_spent"]) == ("KSampler", ["line 1"], 1)
    assert (letter["takeovers"], letter["resubmits"], len(letter["submits"])) == (0, 0, 1)
    assert letter["message"].endswith("and more")
    assert (letter["parameters"], letter["workflow"]) == ({"seed": SEED}, WORKFLOW)
    assert letter["posted"]["9"]["inputs"]["filename_prefix"] == f"genflow/{old}/1/out"
    assert str(SEED).encode() in answer.body
    for given in (str(old)[:8], old.hex[:8], str(old)[:13]):
        assert (await api.get(f"{DEAD}/{given}")).json == letter
    for given in (str(old)[:7], uuid4().hex[:8], str(uuid4()), "ZZZZZZZZ", old.hex + "0"):
        assert (await api.get(f"{DEAD}/{given}")).code == "not_found", given
    waits = await bench.enqueue()
    refused = await api.get(f"{DEAD}/{waits}")
    assert (refused.status, refused.code, refused.details["got"]) == (409, "not_a_dead_letter", "queued")

    one, two = (UUID(f"aaaaaaaa-0000-4000-8000-00000000000{digit}") for digit in "12")
    await bench.queue.cancel(waits)
    for each in (one, two):
        await dead(bench, id=each)
    several = await api.get(f"{DEAD}/aaaaaaaa")
    assert (several.status, several.code, several.details["ids"]) == (409, "ambiguous_id", [str(one), str(two)])


async def test_one_is_requeued_once_and_told_with_its_lineage(api: Client, bench: Bench) -> None:
    old = await dead(bench)
    path = f"{DEAD}/{old}/requeue"
    dry = await api.post(path, json={"set": {"3.seed": 7}, "dry_run": True})
    assert (dry.status, dry.json) == (200, {"id": None, "requeued_from": str(old), "dry_run": True})
    answer = await api.post(path, json={"set": {"3.seed": 7}})
    assert (answer.status, answer.json["requeued_from"]) == (201, str(old))
    new = answer.json["id"]
    story = (await api.get(f"/genflow/v1/jobs/{new}")).json
    assert (story["requeued_from"], story["root_id"], story["requeued_as"]) == (str(old), str(old), None)
    assert story["set_values"] == {"3.seed": 7}
    story = (await api.get(f"/genflow/v1/jobs/{old}")).json
    assert (story["requeued_from"], story["root_id"], story["requeued_as"]) == (None, str(old), new)
    twice = await api.post(path)
    assert (twice.status, twice.code, twice.details["job_id"]) == (409, "already_requeued", new)
    again = await api.post(path, json={"again": True})
    assert again.status == 201
    assert again.json["id"] != new
    for body, status, code in [
        ({"set": {"4.seed": 7}, "again": True}, 422, "invalid_set"),
        ({"set": [1]}, 400, "invalid_request"),
        ({"again": "maybe"}, 400, "invalid_request"),
        ({"since": "1h"}, 400, "invalid_request"),
    ]:
        refused = await api.post(path, json=body)
        assert (refused.status, refused.code) == (status, code)


async def test_all_that_match_are_requeued_page_by_page(
    api: Client, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genflow.api.dead.AT_ONCE", 2)
    kept = await dead(bench, "run_timeout")
    ours = [await dead(bench) for _ in range(4)]
    other = await dead(bench, workflow='{"8": {"class_type": "KSampler", "inputs": {"seed": 1}}}')
    body: dict[str, Any] = {"code": "node_execution_error", "set": {"3.seed": 7}}
    counts = {"jobs": len(await bench.rows("select 1 from genflow.jobs"))}

    async def all_of(body: dict[str, Any]) -> list[dict[str, Any]]:
        pages = [(await api.post(f"{DEAD}/requeue", json=body)).json]
        while pages[-1]["next_cursor"] is not None:
            pages.append((await api.post(f"{DEAD}/requeue", json=body | {"cursor": pages[-1]["next_cursor"]})).json)
        return pages

    dry = await all_of(body | {"dry_run": True})
    assert len(await bench.rows("select 1 from genflow.jobs")) == counts["jobs"]
    pages = await all_of(body)
    assert len(pages) == 3
    for told in (dry, pages):
        assert [each["requeued_from"] for page in told for each in page["requeued"]] == [str(i) for i in ours[::-1]]
        [refused] = [each for page in told for each in page["refused"]]
        assert (refused["id"], refused["error"]["code"]) == (str(other), "invalid_set")
    made = [each["id"] for page in pages for each in page["requeued"]]
    stories = [(await api.get(f"/genflow/v1/jobs/{each}")).json for each in made]
    assert [story["requeued_from"] for story in stories] == [str(each) for each in ours[::-1]]
    assert set(await listed(api)) == {str(kept), str(other)}
    assert await all_of({"code": "run_timeout", "until": "1h"}) == [
        {"requeued": [], "refused": [], "next_cursor": None, "dry_run": False}
    ]


async def test_a_full_queue_stops_a_requeue_of_many_where_it_stands(
    bench: Bench, store: LocalStore, settings: Settings
) -> None:
    ours = [str(await dead(bench)) for _ in range(3)]
    queue = Queue(bench.pool, queue_limit=2, retention_s=60)
    async with serving(queue, store, settings, bench.pool) as api:
        first = await api.post(f"{DEAD}/requeue", json={"all": True})
        assert [each["requeued_from"] for each in first.json["requeued"]] == ours[:0:-1]
        assert first.json["next_cursor"] is not None, "there are more"
        again = {"all": True, "cursor": first.json["next_cursor"]}
        full = await api.post(f"{DEAD}/requeue", json=again)
        assert (full.status, full.code) == (429, "queue_full")
        await bench.rows("update genflow.jobs set state = 12 where state = 2 returning 1")
        rest = (await api.post(f"{DEAD}/requeue", json=again)).json
    assert ([each["requeued_from"] for each in rest["requeued"]], rest["next_cursor"]) == (ours[:1], None)


@pytest.mark.parametrize("what", ["requeue", "purge"])
async def test_everything_must_be_meant(api: Client, bench: Bench, what: str) -> None:
    await dead(bench)
    before = await bench.rows("select * from genflow.jobs")
    for body in (None, {}, {"all": False}, {"requeued": False}, {"clas": "oom"}, {"code": ""}, {"all": "so"}):
        refused = await (api.post(f"{DEAD}/{what}") if body is None else api.post(f"{DEAD}/{what}", json=body))
        assert (refused.status, refused.code) == (400, "invalid_request"), body
    assert await bench.rows("select * from genflow.jobs") == before
    assert (await api.post(f"{DEAD}/{what}", json={"all": True})).status == 200
    assert await listed(api) == []


async def test_what_is_purged_is_gone_and_only_that(api: Client, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genflow.api.dead.AT_ONCE", 2)
    memory = [str(await dead(bench, "out_of_memory")) for _ in range(3)]
    one, kept = str(await dead(bench)), str(await dead(bench))
    body: dict[str, Any] = {"class": "oom"}
    dry = (await api.post(f"{DEAD}/purge", json=body | {"dry_run": True})).json
    assert (dry["purged"], len(await listed(api))) == (memory[:0:-1], 5)
    page = (await api.post(f"{DEAD}/purge", json=body)).json
    assert page["purged"] == memory[:0:-1]
    page = (await api.post(f"{DEAD}/purge", json=body | {"cursor": page["next_cursor"]})).json
    assert (page["purged"], page["next_cursor"]) == (memory[:1], None)
    assert (await api.ask("DELETE", f"{DEAD}/{one[:8]}")).json == {"purged": [one]}
    assert (await api.ask("DELETE", f"{DEAD}/{one}")).code == "not_found"
    waits = await bench.enqueue()
    assert (await api.ask("DELETE", f"{DEAD}/{waits}")).code == "not_a_dead_letter"
    assert (await listed(api), (await bench.row(waits))["state"]) == ([kept], State.QUEUED)
