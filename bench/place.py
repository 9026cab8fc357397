"""Where a benchmark runs: an embedded Postgres of its own and genflow's real processes, as in the tests."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg

from bench import figures
from tests.support.postgres import embedded, open_folder, serving
from tests.support.service import Process, Service, service

PHOTO = Path(__file__).parent.parent / "examples" / "astronaut.jpg"


@contextmanager
def fresh_database(*, on_disk: bool = False) -> Iterator[str]:
    """The conninfo of a migrated database on a server of its own; `on_disk` where each commit is to reach one."""
    with embedded(on_disk=on_disk) as admin, serving(admin) as server:
        conninfo = server.create()
        note_release(conninfo)
        try:
            yield conninfo
        finally:
            server.drop(conninfo)


def note_release(conninfo: str) -> None:
    """Keep the release of the PostgreSQL there."""
    with psycopg.connect(conninfo) as connection:
        figures.ran_with("PostgreSQL", connection.info.parameter_status("server_version") or "")


@asynccontextmanager
async def place(*, on_disk: bool = False) -> AsyncIterator[Service]:
    """A service without processes yet; `on_disk` as for `fresh_database`."""
    with fresh_database(on_disk=on_disk) as conninfo, open_folder() as folder:
        async with service(conninfo, folder) as running:
            yield running


def spread(values: Sequence[float], unit: str = "s") -> str:
    """Minimum, median, 95th percentile, in one line."""
    low, mid, high = low_mid_high(values)
    return f"min {low} · p50 {mid} · p95 {high} {unit}"


def low_mid_high(values: Sequence[float]) -> list[str]:
    """Minimum, median, 95th percentile, for a table."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return [f"{each:.3f}" for each in (ordered[0], statistics.median(ordered), p95)]


def verdict(what: str, value: float, bound: float) -> bool:
    """Print a figure against its bound, for the page too; whether it holds."""
    holds = value <= bound
    figures.judged(what, value, bound, at_least=False, holds=holds)
    print(f"  {what}: {value:.3f} (bound {bound:g}) {'holds' if holds else 'MISSED'}")
    return holds


def verdict_at_least(what: str, value: float, bound: float) -> bool:
    """Print a figure that may not be lower than its bound, for the page too; whether it holds."""
    holds = value >= bound
    figures.judged(what, value, bound, at_least=True, holds=holds)
    print(f"  {what}: {value:.3f} (at least {bound:g}) {'holds' if holds else 'MISSED'}")
    return holds


def resident(process: Process) -> int:
    """Bytes of memory that the process holds now."""
    status = Path(f"/proc/{process.handle.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
