"""Runs benchmarks one after another, each in bounded time, and writes what each found as soon as it has ended."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from bench import figures, machine, page, picture

DOCS = Path(__file__).parent.parent / "docs"
RENDER = "page"
LIMIT_S = 900.0
"""Seconds after which a benchmark has hung."""


class Bench(Protocol):
    """A module that measures something; its docstring says what."""

    __doc__: str | None

    async def run(self) -> bool:
        """Print the figures; whether all bounds hold."""


def run_all(benches: Mapping[str, Bench], names: Sequence[str], docs: Path = DOCS) -> int:
    """Run those named, or all; 1 where a figure misses its bound or a benchmark fails, 2 for an unknown name.

    `page` instead of a name runs nothing, and writes page and picture from what was found before.
    """
    if list(names) == [RENDER]:
        render(docs, figures.load(docs / figures.RESULTS), {})
        return 0
    unknown = [name for name in names if name not in benches]
    if unknown:
        sys.stderr.write(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(benches)}\n")
        return 2
    began = time.monotonic()
    held = [_run(benches, name, docs) for name in names or benches]
    print(f"{len(held)} benchmarks in {(time.monotonic() - began) / 60:.1f} min, {held.count(False)} missed or failed")
    return 0 if all(held) else 1


def _run(benches: Mapping[str, Bench], name: str, docs: Path) -> bool:
    """Run one and put what it found on the page; whether it ran to its end and all bounds hold."""
    began = time.monotonic()
    with figures.recording() as found:
        found.machine |= machine.facts()
        found.date = datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            found.holds = asyncio.run(_limited(benches[name]))
        except (Exception, SystemExit):
            traceback.print_exc()
            print(f"{name} failed; the page keeps what it found before", flush=True)
            return False
    found.seconds = round(time.monotonic() - began, 1)
    print(f"  {name} took {found.seconds:.0f} s", flush=True)
    kept = figures.load(docs / figures.RESULTS) | {name: found}
    results = {each: kept[each] for each in (*benches, *sorted(kept)) if each in kept}
    figures.save(results, docs / figures.RESULTS)
    render(docs, results, {each: benches[each].__doc__ or "" for each in benches})
    return found.holds


async def _limited(bench: Bench) -> bool:
    async with asyncio.timeout(LIMIT_S):
        return await bench.run()


def render(docs: Path, results: Mapping[str, figures.Findings], about: Mapping[str, str]) -> None:
    """Write page and picture from these results."""
    text = docs / "benchmarks.md"
    text.write_text(page.updated(text.read_text(encoding="utf-8"), results, about), encoding="utf-8")
    image = docs / "images" / "benchmarks.svg"
    image.write_text(picture.drawn(results), encoding="utf-8")
