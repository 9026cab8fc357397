"""An erased job is nowhere any more: not its words, its photo, its pictures. Nor is one that is past its time."""

from __future__ import annotations

import json
from uuid import UUID

from psycopg import sql

from tests.promises.test_an_ended_job_leaves_nothing_on_its_server import scrubbed, sizes
from tests.support.cli import Terminal
from tests.support.service import Service, until

PROMPT = "a studio portrait"


async def said(genflow: Service, *words: str) -> set[tuple[str, str]]:
    """Which of the words stand in which table."""
    found = set()
    for (table,) in await genflow.sql("select tablename::text from pg_tables where schemaname = 'genflow'"):
        name = sql.Identifier("genflow", table).as_string()
        rows = await genflow.sql(sql.SQL("select t::text from {} as t").format(sql.SQL(name)).as_string())
        found |= {(table, word) for (row,) in rows for word in words if word in row}
    return found


def in_files(genflow: Service, *words: bytes) -> list[str]:
    """The files of the store and of the server that hold one of the words."""
    places = ("blobs", "jobs", "sim0")
    found = [f"{place}/{name}" for place in places for name in genflow.files(place)]
    return [name for name in found if any(word in (genflow.folder / name).read_bytes() for word in words)]


async def hashes(genflow: Service, job: UUID) -> list[str]:
    """Those of the job's photo and pictures."""
    rows = await genflow.sql(
        "select encode(blob_hash, 'hex') from genflow.assets as a where job_id = %s"
        " or exists (select 1 from genflow.job_assets as r where r.asset_id = a.id and r.job_id = %s)",
        job,
        job,
    )
    return [hash for (hash,) in rows]


async def test_nothing_of_an_erased_portrait_is_left_anywhere(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(scrub=False, blob_grace_s=0)
    worker = await genflow.worker()
    job = await genflow.submit_portrait()
    [output] = (await genflow.succeeded(job))["outputs"]
    kept = await hashes(genflow, job)
    assert len(kept) == 2
    assert {table for table, _ in await said(genflow, PROMPT, *kept)} >= {
        "job_specs",
        "blobs",
        "assets",
        "server_files",
    }
    assert list(await sim.get(f"/history/{job}")) == [str(job)], "this service leaves copies on servers"
    assert all(sizes(genflow, "sim0", kind, job) > [0] for kind in ("input", "output"))

    await worker.stop()  # and with it the last that reaches the server
    terminal = Terminal(genflow.folder, genflow.url)
    refused = await terminal.run("jobs", "delete", str(job))
    refused.says("say --yes")
    erased = await terminal.run("jobs", "delete", str(job), "--yes", "--json")
    assert (erased.status, erased.json["refused"]) == (0, []), erased
    assert erased.json["jobs"] == [
        {
            "id": str(job),
            "status": "erased",
            "files_deleted": True,
            "copies_left": [{"server": "test/sim0", "copies": 2}],
        }
    ]
    for path in (f"/api/v2/jobs/{job}", f"/genflow/v1/jobs/{job}", f"/api/v2/assets/{output['id']}"):
        assert (await genflow.request("GET", path))[0] == 404
    assert (await genflow.http.get(output["url"])).status == 404
    assert genflow.files("blobs") == [], "photo and picture"
    assert genflow.files("jobs") == [], "and the names that they had"
    left = json.loads((await terminal.run("servers", "list", "--json")).out)["servers"]
    assert [server["erasures_left"] for server in left] == [2], "until the server is seen again"
    assert await said(genflow, PROMPT) == set()

    await genflow.worker("second")
    await scrubbed(genflow, sim, job)
    assert sizes(genflow, "sim0", "output", job) == [0]
    assert sizes(genflow, "sim0", "input", job) == [0], "the face"
    assert in_files(genflow, PROMPT.encode()) == []
    assert await said(genflow, PROMPT, *kept) == {("blobs", hash) for hash in await gone_by_name(genflow)}, (
        "for an hour, so that the same file, sent again, is kept"
    )
    await genflow.sql("update genflow.blobs set touched_at = touched_at - interval '61 min'")

    async def buried() -> bool:
        return await said(genflow, PROMPT, *kept) == set()

    await until(buried, "the hashes are gone too")

    # A job past its time
    later = await genflow.submit_portrait()
    await genflow.succeeded(later)
    await genflow.sql("update genflow.jobs set expires_at = genflow.clock()")
    assert (await genflow.request("GET", f"/api/v2/jobs/{later}"))[0] == 404
    await genflow.sql("update genflow.assets set expires_at = genflow.clock() - interval '2 min'")
    await until(lambda: genflow.files("blobs") == [] and genflow.files("jobs") == [], "its bytes are gone")
    assert await genflow.sql("select 1 from genflow.jobs") == []


async def gone_by_name(genflow: Service) -> list[str]:
    rows = await genflow.sql("select encode(hash, 'hex') from genflow.blobs where state = 3")
    return [hash for (hash,) in rows]
