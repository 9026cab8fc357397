"""A batch of many rows outlives the death of everything that works on it: what is done never runs again, what failed is
retried alone, and its results can be read at any time.

The case in the field: 3,000 rows, all killed at row 1,200, 30 bad ones; here a fifteenth of it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from uuid import UUID

from tests.support.cli import Terminal
from tests.support.service import Service, until

ROWS, DONE_BEFORE, BAD = 200, 80, (30, 100, 190)
GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}},
    "2": {"class_type": "ImageToMask", "inputs": {"image": ["1", 0], "channel": "red"}},
    "3": {"class_type": "MaskToImage", "inputs": {"mask": ["2", 0]}},
    "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "row"}},
}


def job_of(row: int) -> UUID:
    return UUID(f"{row:08d}-0000-4000-8000-000000000000")


def write_file(folder: Path, bad_channel: str) -> None:
    """The jobs file. A row whose mask is of the alpha channel passes validation and fails at run time."""
    (folder / "mask.api.json").write_text(json.dumps(GRAPH))
    rows = [
        {
            "id": str(job_of(row)),
            "workflow": "mask.api.json",
            "set": {"1.color": row, "2.channel": bad_channel if row in BAD else "red"},
        }
        for row in range(ROWS)
    ]
    (folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, rows)))


async def results(terminal: Terminal) -> list[dict[str, str]]:
    printed = await terminal.run("results", "jobs.jsonl")
    return list(csv.DictReader(printed.out.splitlines()))


async def executions(genflow: Service) -> Counter[str]:
    """How often each prompt id was run, over all servers."""
    runs: Counter[str] = Counter()
    for server in genflow.simulators:
        for prompt, page in (await server.books())["prompts"].items():
            runs[prompt] += page["executions"]
    return runs


async def test_a_batch_goes_on_where_it_was(genflow: Service) -> None:
    write_file(genflow.folder, "alpha")
    await genflow.simulate(2)
    api, worker = await genflow.api(), await genflow.worker()
    terminal = Terminal(genflow.folder, genflow.url)
    assert (await terminal.run("enqueue", "jobs.jsonl", "--json")).json["rows"] == ROWS

    async def far_enough() -> bool:
        done = await genflow.sql("select count(*) from genflow.jobs where state = 10")
        return bool(done[0][0] >= DONE_BEFORE)

    await until(far_enough, f"{DONE_BEFORE} rows are done", within_s=60)
    meanwhile = Counter(row["status"] for row in await results(terminal))
    assert meanwhile["succeeded"] >= DONE_BEFORE
    assert meanwhile["queued"] > 0
    await worker.kill()
    await api.kill()
    done_before = [str(row[0]) for row in await genflow.sql("select id from genflow.jobs where state = 10")]
    runs_before = await executions(genflow)

    await genflow.api()
    await genflow.worker("second")
    terminal = Terminal(genflow.folder, genflow.url)
    batch = (await terminal.run("enqueue", "jobs.jsonl", "--json")).json  # once more: it runs nothing twice
    assert batch["rows"] == ROWS

    async def all_ended() -> bool:
        _, shown = await genflow.request("GET", f"/genflow/v1/batches/{batch['id']}")
        return bool(shown["queued"] + shown["running"] == 0)

    await until(all_ended, "every row is at its end", within_s=90)
    runs = await executions(genflow)
    assert {job: runs[job] for job in done_before} == {job: runs_before[job] for job in done_before}
    assert runs == {str(job_of(row)): 1 for row in range(ROWS)}
    rows = await results(terminal)
    assert [row["id"] for row in rows if row["status"] == "failed"] == [str(job_of(row)) for row in BAD]
    assert {row["reason"] for row in rows if row["status"] == "failed"} == {
        "execution_error, node 2 (ImageToMask): IndexError: index 3 is out of bounds for dimension 3 with size 3"
    }

    write_file(genflow.folder, "blue")
    refused = await terminal.run("enqueue", "jobs.jsonl")
    assert refused.status == 1
    refused.says(f"line {BAD[0] + 1}: the id {job_of(BAD[0])} belongs to a job with another body (and 2 more rows)")
    retried = await terminal.run("enqueue", "jobs.jsonl", "--retry-failed", "--json")
    assert (retried.json["id"], retried.json["rows"]) == (batch["id"], ROWS)
    await until(all_ended, "the mended rows are at their end", within_s=60)
    after = await executions(genflow)
    assert sum(after.values()) == ROWS + len(BAD), "only the failed rows ran again"
    assert {row["status"] for row in await results(terminal)} == {"succeeded"}
    mended = await genflow.sql("select root_id from genflow.job_specs where requeued_from is not null order by root_id")
    assert [row[0] for row in mended] == [job_of(row) for row in BAD]
