"""`GET /api/v2/jobs`: every job once, newest first, by labels and status, quick among a hundred thousand."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.api.pages import cursor_of
from genflow.failures import Policy
from genflow.queue.records import NewJob
from genflow.queue.statements import statement
from tests.queue.conftest import Bench
from tests.support.api import Client

JOBS = "/api/v2/jobs"


async def labelled(bench: Bench, **metadata: str) -> str:
    job = NewJob(id=uuid4(), workflow="{}", body_hash=b"", policy=Policy(), metadata=metadata)
    await bench.queue.enqueue(job)
    return str(job.id)


async def ids(api: Client, **query: Any) -> list[str]:
    answer = await api.get(JOBS, params=query)
    assert answer.status == 200, answer.json
    return [item["id"] for item in answer.json["jobs"]]


async def test_pages_meet_every_job_once_newest_first(api: Client, bench: Bench) -> None:
    made = [await labelled(bench) for _ in range(7)]
    pages, query = [], {"limit": "3"}
    while True:
        page = (await api.get(JOBS, params=query)).json
        pages.append([item["id"] for item in page["jobs"]])
        made.append(await labelled(bench)) if len(pages) == 1 else None  # comes too late for this walk
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert pages == [made[6:3:-1], made[3:0:-1], made[0:1]]
    whole = (await api.get(JOBS)).json
    assert whole["next_cursor"] is None
    for item in whole["jobs"]:
        assert set(item) == {"id", "status", "create_time", "update_time", "metadata"}
        assert datetime.fromisoformat(item["create_time"]).tzinfo is not None
        assert datetime.fromisoformat(item["update_time"]) >= datetime.fromisoformat(item["create_time"])


async def test_labels_narrow_the_list_each_exactly_and_all_together(api: Client, bench: Bench) -> None:
    one = await labelled(bench, client="acme", order="7")
    two = await labelled(bench, client="acme", order="8", **{"odd [key]=ü": "a b&c"})
    await labelled(bench, client="acme2")
    await labelled(bench)
    assert await ids(api, **{"metadata[client]": "acme"}) == [two, one]
    assert await ids(api, **{"metadata[client]": "acme", "metadata[order]": "7"}) == [one]
    assert await ids(api, **{"metadata[client]": "acme", "metadata[order]": "9"}) == []
    assert await ids(api, **{"metadata[odd [key]=ü]": "a b&c"}) == [two]
    first = (await api.get(JOBS, params={"metadata[client]": "acme", "limit": "1"})).json
    assert await ids(api, **{"metadata[client]": "acme", "cursor": first["next_cursor"]}) == [one]


async def test_statuses_are_those_that_jobs_show(api: Client, bench: Bench) -> None:
    jobs = {name: await labelled(bench) for name in ("queued", "running", "canceling", "failed", "succeeded")}
    for name, change in (
        ("running", "state = 3, executing_at = genflow.clock()"),
        ("canceling", "state = 3, executing_at = genflow.clock(), cancel_at = genflow.clock()"),
        ("failed", "state = 11, ended_at = genflow.clock()"),
        ("succeeded", "state = 10, ended_at = genflow.clock()"),
    ):
        await bench.rows(f"update genflow.jobs set {change} where id = %s returning 1", UUID(jobs[name]))  # noqa: S608
    for name, job in jobs.items():
        assert await ids(api, status=name) == [job]
        assert (await api.get(f"{JOBS}/{job}")).json["status"] == name
    assert await ids(api, status="queued,failed,expired") == [jobs["failed"], jobs["queued"]]
    assert await ids(api, status="succeeded,running") == [jobs["succeeded"], jobs["running"]]
    assert await ids(api, status="expired,canceled") == []


REFUSED = [
    ("limit=0", "invalid_request"), ("limit=101", "invalid_request"), ("limit=x", "invalid_request"),
    ("status=done", "invalid_request"), ("status=held", "invalid_request"),
    ("cursor=", "invalid_cursor"), ("cursor=5", "invalid_cursor"), ("cursor=" + "A" * 300, "invalid_cursor"),
    (f"cursor={cursor_of('stories', 5)}", "invalid_cursor"), (f"cursor={cursor_of('jobs', -5)}", "invalid_cursor"),
    (f"cursor={cursor_of('jobs', '9' * 19)}", "invalid_cursor"),
    ("&".join(f"metadata[{n}]=x" for n in range(4)), "invalid_metadata_filter"),
    ("metadata[a]=1&metadata[a]=2", "invalid_metadata_filter"), ("metadata[]=1", "invalid_metadata_filter"),
    ("metadata=1", "invalid_metadata_filter"), ("metadata[a=1", "invalid_metadata_filter"),
    ("metadata[a]=%00", "invalid_metadata_filter"), ("metadata[" + "k" * 257 + "]=1", "invalid_metadata_filter"),
    ("metadata[a]=" + "v" * 1_025, "invalid_metadata_filter"),
]  # fmt: skip


async def test_a_query_that_means_nothing_is_refused_by_its_code(api: Client) -> None:
    for query, code in REFUSED:
        answer = await api.get(f"{JOBS}?{query}")
        assert (answer.status, answer.code) == (400, code), query
    assert (await api.get(f"{JOBS}?deployment=x&metadata[a]=1&metadata[a]=1")).status == 200


async def test_a_job_past_its_time_is_listed_no_more_and_another_tenants_never(api: Client, bench: Bench) -> None:
    gone, other, ours = [await labelled(bench, tag="x") for _ in range(3)]
    await bench.rows(
        "update genflow.jobs set state = 10, expires_at = genflow.clock() where id = %s returning 1", UUID(gone)
    )
    await bench.rows("update genflow.jobs set tenant_id = 2 where id = %s returning 1", UUID(other))
    assert await ids(api) == await ids(api, **{"metadata[tag]": "x"}) == [ours]


@pytest.fixture
async def crowd(bench: Bench) -> Bench:
    """A hundred thousand jobs, each with a label of its own and one of ten that they share; ten are live."""
    async with bench.pool.connection() as connection:
        await connection.execute(
            b"""with made as (
                    insert into genflow.jobs (id, state, created_at, ended_at, expires_at)
                    select gen_random_uuid(), case when n %% 10000 = 0 then 2 else 10 end, now(), now(), now() + '1 d'
                    from generate_series(1, 100000) as n
                    returning id, seq)
                insert into genflow.job_specs (job_id, workflow, body_hash, metadata, policy)
                select id, '{}', '', jsonb_build_object('order', seq::text, 'client', (seq %% 10)::text), '{}'
                from made""",
            [],
        )
        await connection.set_autocommit(True)
        for table in (b"genflow.jobs", b"genflow.job_specs"):
            await connection.execute(b"vacuum analyze " + table)
        await connection.set_autocommit(False)
    return bench


async def test_among_a_hundred_thousand_jobs_a_page_reads_what_it_shows(crowd: Bench) -> None:
    nothing: dict[str, Any] = {"tenant": 1, "limit": 51, "before": None, "states": None, "live": None, "labels": None}
    read = {}
    asked: dict[str, dict[str, Any]] = {
        "newest": {},
        "far": {"before": 1_000},
        "rare": {"labels": json.dumps({"order": "77"})},
        "common": {"labels": json.dumps({"client": "3"})},
        "unknown": {"labels": json.dumps({"order": "nobody's"})},
        "live": {"states": [1, 2, 3], "live": ["queued"]},
    }
    for name, wanted in asked.items():
        async with crowd.pool.connection() as connection:
            cursor = await connection.execute(
                b"explain (analyze, buffers, format json) " + statement("job_list").encode(), nothing | wanted
            )
            row = await cursor.fetchone()
            assert row is not None
            plan = row["QUERY PLAN"][0]["Plan"]
            read[name] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    # For 51 rows a few hundred pages; what a tenth of all jobs have is found by the labels' index or by the list's.
    assert read["common"] < 4_000, read
    assert max(blocks for name, blocks in read.items() if name != "common") < 500, read
