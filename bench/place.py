"""Where a benchmark runs: an embedded Postgres of its own and genflow's real processes, as in the tests."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.postgres import embedded, open_folder, serving
from tests.support.service import Process, Service, service

PHOTO = Path(__file__).parent.parent / "examples" / "astronaut.jpg"


@contextmanager
def fresh_database(*, on_disk: bool = False) -> Iterator[str]:
    """The conninfo of a migrated database on a server of its own; `on_disk` where each commit is to reach one."""
    with embedded(on_disk=on_disk) as admin, serving(admin) as server:
        conninfo = server.create()
        try:
            yield conninfo
        finally:
            server.drop(conninfo)


@asynccontextmanager
async def place(*, on_disk: bool = False) -> AsyncIterator[Service]:
    """A service without processes yet; `on_disk` as for `fresh_database`."""
    with fresh_database(on_disk=on_disk) as conninfo, open_folder() as folder:
        async with service(conninfo, folder) as running:
            yield running


def spread(values: Sequence[float], unit: str = "s") -> str:
    """Minimum, median, 95th percentile."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"min {ordered[0]:.3f} · p50 {statistics.median(ordered):.3f} · p95 {p95:.3f} {unit}"


def verdict(what: str, value: float, bound: float) -> bool:
    """Print a figure against its bound; whether it holds."""
    holds = value <= bound
    print(f"  {what}: {value:.3f} (bound {bound:g}) {'holds' if holds else 'MISSED'}")
    return holds


def verdict_at_least(what: str, value: float, bound: float) -> bool:
    """Print a figure that may not be lower than its bound; whether it holds."""
    holds = value >= bound
    print(f"  {what}: {value:.3f} (at least {bound:g}) {'holds' if holds else 'MISSED'}")
    return holds


def resident(process: Process) -> int:
    """Bytes of memory that the process holds now."""
    status = Path(f"/proc/{process.handle.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
