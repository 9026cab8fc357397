"""A jobs file is read whole or not at all, and every line that can't be a job is named by its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from genflow.edits import set_inputs
from genflow.errors import GenflowError
from genflow.intake.jobs_file import FileJob, read_jobs_file

GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "solid"}},
}
ID = "00000003-0000-4000-8000-000000000000"


def written(folder: Path, text: str, name: str = "jobs.jsonl") -> Path:
    (folder / "solid.api.json").write_text(json.dumps(GRAPH))
    path = folder / name
    path.write_text(text)
    return path


def jsonl(folder: Path, *rows: Any) -> list[FileJob]:
    return read_jobs_file(written(folder, "\n".join(json.dumps(row) for row in rows)))


def refused(folder: Path, text: str, name: str = "jobs.jsonl") -> str:
    with pytest.raises(GenflowError) as error:
        read_jobs_file(written(folder, text, name))
    assert error.value.code == "jobs_file_invalid"
    return error.value.message


def graph(job: FileJob) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(job.workflow)
    return made


def test_a_row_names_its_workflow_by_a_path_beside_the_file_or_holds_it(tmp_path: Path) -> None:
    by_path, whole = jsonl(
        tmp_path,
        {"id": ID, "workflow": "solid.api.json", "set": {"1.color": 2**53 + 1}},
        {"workflow": GRAPH, "priority": -3, "metadata": {"chord": "C"}},
    )
    assert (by_path.id, graph(by_path)["1"]["inputs"]["color"], by_path.values) == (
        UUID(ID), 2**53 + 1, {"1.color": 2**53 + 1}
    )  # fmt: skip
    assert (graph(whole), whole.priority, whole.metadata, whole.line) == (GRAPH, -3, {"chord": "C"}, 2)


def test_without_an_id_the_same_row_is_the_same_job(tmp_path: Path) -> None:
    first, same, other = jsonl(tmp_path, *({"workflow": GRAPH, "set": {"1.color": color}} for color in (1, 1, 2)))
    assert first.id == same.id != other.id
    assert first.id == jsonl(tmp_path, {"workflow": "solid.api.json", "set": {"1.color": 1}})[0].id


def test_csv_cells_become_what_the_workflow_holds_there(tmp_path: Path) -> None:
    text = f"id,workflow,1.color,3.filename_prefix\n{ID},solid.api.json,7,42\n,solid.api.json,,\n"
    first, second = read_jobs_file(written(tmp_path, text, "jobs.csv"))
    assert (graph(first)["1"]["inputs"]["color"], graph(first)["3"]["inputs"]["filename_prefix"]) == (7, "42")
    assert (first.line, second.line, graph(second)) == (2, 3, GRAPH)


def test_csv_takes_one_workflow_for_all_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "1.color\n1\n2\n", "jobs.csv")
    jobs = read_jobs_file(path, workflow=tmp_path / "solid.api.json")
    assert [graph(job)["1"]["inputs"]["color"] for job in jobs] == [1, 2]


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    good = {"workflow": "solid.api.json"}
    rows = [
        json.dumps(good), "{", json.dumps(good | {"id": "A" + ID[1:]}), json.dumps({"set": {}}),
        json.dumps(good | {"set": {"1.colour": 1}}), json.dumps(good | {"set": {"9.color": 1}}),
        json.dumps(good | {"set": {"3.images": 1}}), json.dumps(good | {"sett": 1}),
        json.dumps({"workflow": "no.json"}),
        json.dumps(good | {"priority": "high"}), json.dumps(good | {"set": {"1.color": [1]}}),
    ]  # fmt: skip
    told = refused(tmp_path, "\n".join(rows)).split("\n  ")[1:]
    assert [line.partition(":")[0] for line in told] == [f"line {number}" for number in range(2, 12)]
    for line, words in zip(
        told,
        (
            "no JSON object", "lowercase UUID", "--workflow", "no input 'colour'; it has width, height",
            "no node '9'; it has 1, 3", "a link to another node", "unknown key 'sett'", "no.json can't be read",
            "whole number from -100 to 100", "not list",
        ),
        strict=True,
    ):  # fmt: skip
        assert words in line


def test_csv_tells_what_a_cell_should_be(tmp_path: Path) -> None:
    told = refused(tmp_path, "workflow,1.color\nsolid.api.json,red\nsolid.api.json\n", "jobs.csv")
    assert "line 2: 'red' is no number" in told
    assert "line 3: it has 1 cells, the head has 2" in told


def test_an_id_with_two_bodies_is_refused_and_with_one_is_a_repeat(tmp_path: Path) -> None:
    row = {"id": ID, "workflow": "solid.api.json"}
    assert [job.line for job in jsonl(tmp_path, row, row)] == [1, 2]
    with pytest.raises(GenflowError, match=f"the id {ID} is that of line 1, with another workflow"):
        jsonl(tmp_path, row, row | {"set": {"1.color": 9}})


def test_setting_leaves_every_other_number_as_it_was() -> None:
    text = '{"1": {"class_type": "K", "inputs": {"seed": 18446744073709551615, "steps": 4}}}'
    assert set_inputs(text, {"1.steps": 5}) == text.replace("4}", "5}")
