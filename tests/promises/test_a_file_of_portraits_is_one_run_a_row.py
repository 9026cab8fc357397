"""A CSV of photos and prompts is one run per row, however often it is sent, through a service and without one."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.cli import Ended, Terminal
from tests.support.repository import ROOT
from tests.support.service import Service

EXAMPLES = ROOT / "examples"
ROWS = 3


def a_file(folder: Path) -> Path:
    """The example's jobs file with its faces, in a folder of its own."""
    place = folder / "order"
    shutil.copytree(EXAMPLES / "portraits", place, ignore=shutil.ignore_patterns("faces", "__pycache__"))
    subprocess.run([sys.executable, place / "faces.py"], check=True)
    return place / "portraits.csv"


async def runs(genflow: Service) -> int:
    return sum([await server.count("ended") for server in genflow.simulators])


def rows(printed: Ended) -> list[dict[str, Any]]:
    assert printed.status == 0, printed.err
    return list(csv.DictReader(io.StringIO(printed.out)))


async def test_through_a_service(genflow: Service) -> None:
    file = a_file(genflow.folder)
    await genflow.simulate_pair()
    await genflow.api(templates=EXAMPLES / "templates")
    await genflow.worker()
    here = Terminal(genflow.folder, genflow.url)
    send = ("enqueue", str(file), "--template", "portrait", "--json")
    first = await here.run(*send)
    assert first.status == 0, first.err
    assert first.json["rows"] == ROWS
    listed = rows(await here.run("results", str(file), "--template", "portrait"))
    for row in listed:
        await genflow.ended(UUID(row["id"]))
    second = await here.run(*send)
    assert (second.json["id"], second.json["succeeded"]) == (first.json["id"], ROWS), "the same file is the same batch"
    assert await runs(genflow) == ROWS
    assert await genflow.sql("select count(*) from genflow.jobs") == [(ROWS,)]
    done = rows(await here.run("results", str(file), "--template", "portrait"))
    assert [(row["status"], row["photo"], row["seed"]) for row in done] == [
        ("succeeded", "faces/left.png", "7"), ("succeeded", "faces/right.png", "7"),
        ("succeeded", "faces/left.png", "8"),
    ]  # fmt: skip
    files = [row["files"].split(":")[1] for row in done]
    assert len(set(files)) == ROWS, "another face or another prompt is another picture"
    uploads = "select count(distinct blob_hash) from genflow.assets where kind = 'upload'"
    assert await genflow.sql(uploads) == [(4,)], "two faces as they were sent, and the two photos made of them"

    with file.open("a") as more:
        more.write("faces/nobody.png,x,1,4,256,320\n")
    bad = await here.run(*send)
    assert bad.status == 2
    bad.says("line 5: photo: the file faces/nobody.png can't be read")
    assert await genflow.sql("select count(*) from genflow.jobs") == [(ROWS,)], "nothing of it was enqueued"
    shown = await here.run("templates", "show", "square")
    assert "64 to 1024, multiples of 8" in shown.out
    assert "portrait" in (await here.run("templates", "list")).out


async def test_without_a_service(genflow: Service) -> None:
    file = a_file(genflow.folder)
    await genflow.simulate_pair()
    here = Terminal(genflow.folder, "http://127.0.0.1:9")
    gpus = [f"--gpu={server.name}={server.url}" for server in genflow.simulators]
    words = ("run", str(file), "--template", "portrait", "--store", "out", "--no-scrub", *gpus)
    first = await here.run(*words)
    assert first.out.splitlines()[-1] == f"summary: {ROWS} acknowledged, 0 dead-lettered", first.err
    second = await here.run(*words)
    assert second.out.count("already done, acknowledged without running") == ROWS, second.out
    assert await runs(genflow) == ROWS
    wanted = ("results", str(file), "--template", "portrait", "--store", "out", "--out", "told.csv")
    assert (await here.run(*wanted)).status == 0
    told = list(csv.DictReader(io.StringIO((genflow.folder / "told.csv").read_text())))
    assert [row["status"] for row in told] == ["succeeded"] * ROWS
