"""docs/benchmarks.md: prose by hand, and between two marks per benchmark what its last run found. Pure.

A section without marks gets them in the place of its first table. A benchmark that the page doesn't know gets a section
at its end, with its docstring as the prose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

from bench.figures import Findings, Table, Verdict

OVERVIEW = "all"
"""The part of the page that says what ran and for how long."""
END = "<!-- end of figures -->"


def begin(name: str) -> str:
    """The mark in front of a benchmark's figures."""
    return f"<!-- figures of {name}: written by make bench -->"


def updated(page: str, results: Mapping[str, Findings], about: Mapping[str, str]) -> str:
    """The page with the figures of `results`; `about` says what each benchmark is, for one that is new to it."""
    for name, findings in results.items():
        if begin(name) not in page:
            page = _marked(page, name) or f"{page.rstrip()}\n\n{new_section(name, about.get(name, ''))}"
        page = _put(page, name, section(findings))
    return _put(page, OVERVIEW, overview(results)) if begin(OVERVIEW) in page and results else page


def _put(page: str, name: str, text: str) -> str:
    """The page with this text between the marks of `name`. Raises ValueError where the second mark is gone."""
    head, mark, rest = page.partition(begin(name))
    old, end, tail = rest.partition(END)
    if not end or "<!-- figures of " in old:
        raise ValueError(f"the figures of {name} have no end on the page")
    return f"{head}{mark}\n{text}\n{end}{tail}"


def _marked(page: str, name: str) -> str | None:
    """The page with marks in the section of `name`; None where it has no such section."""
    found = re.search(rf"(?ms)^## [^\n]*`make bench ONLY={name}`.*?(?=^## |\Z)", page)
    if found is None:
        return None
    table = re.search(r"(?m)(?:^\|.*\n?)+", found[0])
    start, end = table.span() if table else (len(found[0]), len(found[0]))
    head, tail = page[: found.start() + start].rstrip(), page[found.start() + end :].lstrip()
    return f"{head}\n\n{begin(name)}\n{END}\n" + (f"\n{tail}" if tail else "")


def new_section(name: str, about: str) -> str:
    """A section for a benchmark that the page doesn't know yet."""
    title = name.replace("_", " ").capitalize()
    return f"## {title} (`make bench ONLY={name}`)\n\n{about.strip()}\n\n{begin(name)}\n{END}\n"


def section(findings: Findings) -> str:
    """Tables, or else what was printed; verdicts; when and where they were taken."""
    parts = [markdown(each) for each in findings.tables]
    if findings.printed:
        parts.append("\n".join(["```text", *findings.printed, "```"]))
    if findings.verdicts:
        parts.append(markdown(_verdicts(findings.verdicts)))
    return "\n\n".join([*parts, f"*{footer(findings)}*"])


def markdown(table: Table) -> str:
    """A table in Markdown, its first column text, the others figures."""
    rule = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = [table.columns, rule, *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _verdicts(verdicts: list[Verdict]) -> Table:
    rows = [
        [each.what, shown(each.value), bound(each) + ("" if each.holds else ", **missed**")] for each in verdicts
    ]  # fmt: skip
    return Table(["against its bound", "measured", "bound"], rows)


def bound(verdict: Verdict) -> str:
    """A bound in words."""
    return f"{'at least' if verdict.at_least else 'at most'} {shown(verdict.bound)}"


def shown(value: float) -> str:
    """A figure with four digits, or whole with thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def day(iso: str) -> str:
    """A date as people write it."""
    when = date.fromisoformat(iso[:10])
    return f"{when.day} {when:%B %Y}"


def footer(findings: Findings) -> str:
    """When it ran, for how long, and on what."""
    machine = ", ".join(f"{name} {value}" if value else name for name, value in findings.machine.items())
    return f"{day(findings.date)}, in {findings.seconds:.0f} s: {machine}."


def overview(results: Mapping[str, Findings]) -> str:
    """One line for each benchmark: its bounds, its time, its day."""
    rows = []
    for name, each in results.items():
        held = sum(verdict.holds for verdict in each.verdicts)
        missed = len(each.verdicts) - held
        told = f"{held} held" + (f", {missed} **missed**" if missed else "") if each.verdicts else "no bound"
        rows.append([f"`{name}`", told, f"{each.seconds:.0f} s", day(each.date)])
    total = sum(each.seconds for each in results.values())
    rows.append(["all", "", f"{total / 60:.1f} min", ""])
    return markdown(Table(["benchmark", "bounds", "takes", "ran on"], rows))


def known(page: str) -> list[str]:
    """The benchmarks that have a place on the page, in its order."""
    return re.findall(r"<!-- figures of (\w+): written by make bench -->", page)
