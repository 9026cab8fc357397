"""Rows over a template: typed by its parameters, their files found beside the file, the same row the same job."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from blake3 import blake3

from genflow.errors import GenflowError
from genflow.intake.jobs_file import read_jobs_file, read_rows, with_files
from genflow.intake.template_rows import LocalFile, TemplateRow, local_files, row_id, sent

KINDS = {"portrait": {"photo": "photo", "prompt": "text", "seed": "seed", "cfg": "number"}}


def rows_of(folder: Path, text: str, name: str = "jobs.csv", template: str | None = "portrait") -> list[TemplateRow]:
    path = folder / name
    path.write_text(text)
    found = with_files(path, read_rows(path, template=template), KINDS)
    return [row for row in found if isinstance(row, TemplateRow)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "faces").mkdir()
    for name in ("anna", "ben", "twin"):
        (tmp_path / "faces" / f"{name}.jpg").write_text("anna" if name == "twin" else name)
    return tmp_path


def test_cells_become_what_the_parameters_take(folder: Path) -> None:
    [first, second] = rows_of(
        folder, 'photo,prompt,seed,cfg\nfaces/anna.jpg,"007",18446744073709551615,6.5\nfaces/ben.jpg,x,,\n'
    )
    assert (first.line, second.line) == (2, 3)
    anna = blake3(b"anna").hexdigest()
    assert first.values == {
        "photo": LocalFile("faces/anna.jpg", folder / "faces/anna.jpg", anna), "prompt": "007",
        "seed": 2**64 - 1, "cfg": 6.5,
    }  # fmt: skip
    assert set(second.values) == {"photo", "prompt"}
    asset = uuid4()
    assert sent(first, {anna: asset})["photo"] == {
        "__type": "core/ASSET", "info": {"id": str(asset), "hash": f"blake3:{anna}", "file_path": "faces/anna.jpg"},
    }  # fmt: skip


def test_the_same_row_is_the_same_job_whatever_its_file_is_called(folder: Path) -> None:
    [anna, twin, ben] = rows_of(folder, "photo,prompt\nfaces/anna.jpg,x\nfaces/twin.jpg,x\nfaces/ben.jpg,x\n")
    assert anna.id == twin.id != ben.id
    assert anna.id == row_id("portrait", {"prompt": "x"}, {"photo": f"blake3:{blake3(b'anna').hexdigest()}"})
    assert len(local_files([anna, twin, ben])) == 2, "a file is sent once"
    [json_row] = rows_of(
        folder, '{"template": "portrait", "set": {"prompt": "x", "photo": "faces/anna.jpg"}}', "j.jsonl", None
    )
    assert json_row.id == anna.id
    [by_url] = rows_of(folder, "photo,prompt\nhttps://example.com/a.jpg,x\n")
    assert by_url.id == row_id("portrait", {"prompt": "x"}, {"photo": "https://example.com/a.jpg"})
    [by_asset] = rows_of(folder, f"photo,prompt\n{uuid4()},x\n")
    assert by_asset.id is None, "only the service knows the bytes of an asset"


def test_every_bad_row_is_named(folder: Path) -> None:
    with pytest.raises(GenflowError) as caught:
        rows_of(
            folder,
            '{"template": "portrait", "set": {"photo": "faces/nobody.jpg"}}\n{"template": "portrait"}\n'
            '{"template": "landscape"}\n{"template": "portrait", "set": {"colour": 1}}\n',
            "jobs.jsonl",
        )
    assert caught.value.details is not None
    assert [bad["line"] for bad in caught.value.details["lines"]] == [1, 3, 4]
    said = [bad["reason"] for bad in caught.value.details["lines"]]
    assert said[0].startswith("photo: the file faces/nobody.jpg can't be read: No such file or directory")
    assert said[1] == "there is no template 'landscape'; there are portrait"
    assert said[2] == "the template portrait has no parameter 'colour'; it has photo, prompt, seed, cfg"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"template": 7}', "must be the name of a template"),
        ('{"template": "portrait", "workflow": {"1": {"class_type": "A", "inputs": {}}}}', "only one of them"),
        ('{"template": "portrait", "id": "7"}', "must be a lowercase UUID"),
    ],
)
def test_a_row_that_says_two_things_is_refused(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(GenflowError, match=why):
        rows_of(tmp_path, line, "jobs.jsonl", None)


def test_one_id_has_one_body_and_a_broker_takes_no_templates(folder: Path) -> None:
    same = '{"id": "00000001-0000-4000-8000-000000000000", "template": "portrait", "set": {"prompt": "%s"}}\n'
    with pytest.raises(GenflowError, match="is that of line 1"):
        rows_of(folder, same % "a" + same % "b", "jobs.jsonl", None)
    (folder / "one.jsonl").write_text(same % "a")
    with pytest.raises(GenflowError, match="goes through a service"):
        read_jobs_file(folder / "one.jsonl")
