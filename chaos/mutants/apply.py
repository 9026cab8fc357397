"""The source of a mutant: a copy of the package with its edits."""

from __future__ import annotations

import shutil
from pathlib import Path

from chaos.mutants.table import Edit, Mutant


class DoesNotApply(Exception):
    """An edit's text does not stand where it should, as often as it should."""


def make(mutant: Mutant, source: Path, target: Path) -> None:
    """Copy the package `genflow` below `source` to `target`, and break its rule there. Raises DoesNotApply."""
    shutil.copytree(source / "genflow", target / "genflow", ignore=shutil.ignore_patterns("__pycache__"))
    for edit in mutant.edits:
        _edit(edit, target / "genflow")


def _edit(edit: Edit, package: Path) -> None:
    found = 0
    for path in sorted(package.glob(edit.path)):
        text = path.read_text(encoding="utf-8")
        found += text.count(edit.old)
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    if found != edit.times if edit.times is not None else found == 0:
        raise DoesNotApply(f"{edit.path} has {edit.old!r} {found} times")
