"""What the last chaos run counted for genflow, `out/chaos/report.json`; where none is there, one is run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from bench.page import day
from tests.support.repository import ROOT

REPORT = ROOT / "out" / "chaos" / "report.json"
LIMIT_S = 420.0


async def counted() -> tuple[dict[str, Any], str] | None:
    """The report and the day it was made; None where this repository has no chaos package, or its run did not end."""
    if not REPORT.exists() and (ROOT / "chaos" / "__main__.py").exists():
        print("  no report of the chaos package is here yet: one run of it, three minutes", flush=True)
        await _run()
    if not REPORT.exists():
        return None
    return _read(REPORT)


async def _run() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chaos", cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await asyncio.wait_for(process.wait(), LIMIT_S)
    except TimeoutError:
        process.terminate()
        await process.wait()


def _read(path: Path) -> tuple[dict[str, Any], str]:
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report, day(date.fromtimestamp(path.stat().st_mtime).isoformat())


def row(report: Mapping[str, Any], made: str) -> list[str]:
    """One line of a table: what it was, jobs, faults, runs doubled, jobs lost, and both per 1,000 faults. Pure."""
    faults = sum(report["faults"].values())
    per = [f"{1000 * report[what] / faults:.0f}" if faults else "" for what in ("doubled", "lost")]
    name = f"genflow, `make chaos` of {made}, seed {report['seed']}"
    return [name, f"{report['jobs']:,}", f"{faults:,}", str(report["doubled"]), str(report["lost"]), *per]
