"""A broken promise is told with its seed, its rule and its job's whole story; the numbers and the picture are there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from chaos.oracle import judge
from chaos.plan import plan
from chaos.report import report, text, write
from chaos.snapshot import Event, Snapshot
from genflow.jobs import State
from tests.chaos.snapshots import GOOD, MESSAGE, whole


def lost() -> Snapshot:
    """A run that lost a job, under two faults."""
    run = whole()
    jobs = tuple(replace(row, state=State.QUEUED) if row.id == MESSAGE else row for row in run.jobs)
    return replace(run, jobs=jobs, events=(Event(4.0, "kill", "worker0", 1.0), Event(2.1, "died at", "api0")))


def test_numbers_and_stories() -> None:
    run = lost()
    told = report(plan(7, 3.0), run, judge(run), wall_s=1.0, without=["RabbitMQ"])
    assert (told["seed"], told["jobs"], told["lost"], told["doubled"], told["runs"]) == (7, 5, 1, 0, 4)
    assert told["faults"] == {"failpoint": 1, "kill": 1}
    assert told["ends"] == {"canceled": 1, "failed": 2, "queued": 1, "succeeded": 1}
    shown = text(told)
    for words in (
        "seed 7",
        "BROKEN   what was accepted is not lost",
        "without  RabbitMQ",
        "published",
        "fault    kill",
    ):
        assert words in shown
    story = next(each["story"] for each in told["broken"] if each["job"] == MESSAGE)
    times = [float(line.split(" s")[0]) for line in story if " s  " in line]
    assert times == sorted(times)
    assert len(times) > 5


def test_a_green_run_says_so_in_three_files(tmp_path: Path) -> None:
    run = whole()
    told = report(plan(7, 3.0), run, judge(run), wall_s=1.0, without=[])
    write(tmp_path, told, run)
    assert json.loads((tmp_path / "report.json").read_text())["broken"] == []
    assert "every promise kept" in (tmp_path / "report.txt").read_text()
    drawing = ElementTree.parse(tmp_path / "timeline.svg").getroot()  # noqa: S314 (our own)
    bars = [each.get("class") for each in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars.count("run") == 1 + len(run.executions)
    assert GOOD in run.job
