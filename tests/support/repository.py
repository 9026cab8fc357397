"""The repository's own files, for the tests that hold its house rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def repository_files(*suffixes: str) -> Iterator[Path]:
    """Every file that belongs to the repository and is not ignored; with suffixes, those that have one of them."""
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()} | {".git"}
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.name in ignored or any(path.match(pattern) for pattern in ignored):
                continue
            if path.is_dir():
                folders.append(path)
            elif not suffixes or path.suffix in suffixes:
                yield path


def relative(path: Path) -> str:
    """The path as a reader of the repository would write it."""
    return path.relative_to(ROOT).as_posix()
