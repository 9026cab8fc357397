"""Each mutant applies to the source as it is, and is a genflow that starts; `python -m chaos.mutants` attacks them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.mutants import MUTANTS, Edit, Mutant
from chaos.mutants.apply import DoesNotApply, make
from tests.support.repository import ROOT

ASKED = (
    "import genflow.app, genflow.api.app, genflow.intake.rabbit, genflow.worker.attempt, sys; print(genflow.__file__)"
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies_and_is_whole(mutant: Mutant, tmp_path: Path) -> None:
    make(mutant, ROOT / "src", tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", ASKED], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(tmp_path))
    changed = [
        path
        for path in (tmp_path / "genflow").rglob("*")
        if path.suffix in (".py", ".sql")
        and path.read_bytes() != (ROOT / "src" / path.relative_to(tmp_path)).read_bytes()
    ]
    assert {edit.path.rpartition("/")[0] for edit in mutant.edits} == {
        path.relative_to(tmp_path / "genflow").parent.as_posix() for path in changed
    }


def test_ten_at_least_and_each_once() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10


@pytest.mark.parametrize(
    "edit",
    [Edit("jobs.py", "no such text", ""), Edit("jobs.py", "import", "import", times=1), Edit("no/*.sql", "a", "")],
)
def test_an_edit_that_does_not_fit_is_an_error(edit: Edit, tmp_path: Path) -> None:
    with pytest.raises(DoesNotApply):
        make(Mutant("x", "x", (edit,)), ROOT / "src", tmp_path)
