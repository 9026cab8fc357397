"""What benchmarks found, for docs/benchmarks.md: tables, verdicts, numbers for the picture, and what they ran on.

A benchmark calls `table`, `number` and `ran_with` where it has something to say; verdicts come from `bench.place`. They
go to the benchmark that runs just now, and stand in docs/benchmarks.json, from which the page is written. What one that
has no table prints stands on the page as it is.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = "benchmarks.json"
"""The file in docs/ that keeps all findings."""


@dataclass(frozen=True)
class Table:
    """A table as it is printed and as it stands on the page."""

    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Verdict:
    """A figure against its bound: at most that much, or at least."""

    what: str
    value: float
    bound: float
    at_least: bool
    holds: bool


@dataclass
class Findings:
    """All that one benchmark found in one run."""

    date: str = ""
    seconds: float = 0.0
    holds: bool = False
    machine: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    """Lines of one that has no table, its verdicts left out."""
    numbers: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Findings:
        """Findings as the file keeps them."""
        tables = [Table(**each) for each in kept["tables"]]
        verdicts = [Verdict(**each) for each in kept["verdicts"]]
        return cls(**{**kept, "tables": tables, "verdicts": verdicts})


_now: list[Findings] = []


class _Heard(io.StringIO):
    """Standard output that is passed on and kept."""

    def write(self, text: str, /) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]  # None only where a process has no standard output
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)

    def lines(self) -> list[str]:
        """What was said below the first line, which says what is measured, and is no verdict."""
        said = [line[2:] for line in self.getvalue().splitlines() if line.startswith("  ")]
        return [line for line in said if not line.endswith((" holds", " MISSED"))]


@contextmanager
def recording() -> Iterator[Findings]:
    """Findings that take what is said until the end of the block."""
    findings = Findings()
    heard = _Heard()
    _now.append(findings)
    try:
        with redirect_stdout(heard):
            yield findings
    finally:
        _now.remove(findings)
        if not findings.tables:
            findings.printed = heard.lines()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table and keep it. The first column is text, the others are figures."""
    told = Table(list(columns), [list(row) for row in rows])
    lines = [told.columns, *told.rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "   ".join(cells).rstrip())
    for findings in _now[-1:]:
        findings.tables.append(told)


def judged(what: str, value: float, bound: float, *, at_least: bool, holds: bool) -> None:
    """Keep a verdict."""
    for findings in _now[-1:]:
        findings.verdicts.append(Verdict(what, value, bound, at_least, holds))


def number(name: str, value: Any) -> None:
    """Keep a number, or a list or table of them, for the picture and the text."""
    for findings in _now[-1:]:
        findings.numbers[name] = value


def ran_with(program: str, release: str) -> None:
    """Keep the release of a program that took part."""
    for findings in _now[-1:]:
        findings.machine[program] = release


def load(path: Path) -> dict[str, Findings]:
    """What all benchmarks found when they last ran; empty where none did."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {name: Findings.read(each) for name, each in kept.items()}


def save(results: Mapping[str, Findings], path: Path) -> None:
    """Write the file anew."""
    text = json.dumps({name: asdict(each) for name, each in results.items()}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
