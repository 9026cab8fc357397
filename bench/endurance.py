"""Five thousand jobs that do next to nothing through one server: the last are as quick as the first, and neither the
server's history and disk nor the memory of the API and the worker grow.

A job's overhead is the time from its acceptance to its result, by the database's clock, less the run itself by the
server's.
"""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from typing import Any

from bench.place import place, resident, verdict
from tests.support.service import Service, Simulator

JOBS, WINDOW = 5_000, 500
AT_ONCE = 4
"""Jobs under way at a time: the server's two slots are always filled."""
MEMORY_MB = 20.0
"""The most that either process may hold more after the last job than after the first window."""


def workflow(number: int) -> dict[str, Any]:
    """One picture of 16 × 16 pixels, another one each time."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": number}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "noop"}},
    }


async def run() -> bool:
    """Print the medians and what lies on the server; whether nothing grew."""
    print(f"endurance: {JOBS} no-op jobs, {AT_ONCE} at a time, the first {WINDOW} beside the last")
    async with place() as genflow:
        [sim] = await genflow.simulate()
        api = await genflow.api(scrub=True)
        worker = await genflow.worker(lease=30, log_level="warning", poll_ms=1000)
        marks: list[tuple[int, int, int]] = []
        held: list[tuple[int, int]] = []
        numbers = iter(range(1, JOBS + 1))

        async def lane() -> None:
            for number in numbers:
                await genflow.succeeded(await genflow.submit(workflow(number)))
                if number % WINDOW == 0:
                    held.append((resident(api), resident(worker)))
                    marks.append((number, *await _left(genflow, sim)))

        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
        rows = await genflow.sql(
            "select extract(epoch from j.ended_at - j.created_at)::float8 * 1000"
            " - (select max(u.exec_end_ms - u.exec_start_ms) from genflow.submits u where u.job_id = j.id)"
            " from genflow.jobs j order by j.seq"
        )
    overheads = [float(row[0]) for row in rows]
    first, last = statistics.median(overheads[:WINDOW]), statistics.median(overheads[-WINDOW:])
    for number, history, size in marks[:: max(1, len(marks) // 5)]:
        print(f"  after {number}: {history} entries in the history, {size} bytes in the server's files")
    print(f"  median overhead: first {first:.1f} ms, last {last:.1f} ms")
    flat = max(history for _, history, _ in marks) <= 100 and max(size for *_, size in marks) <= 100_000
    print(f"  the server's history and files are {'flat' if flat else 'GROWING'}")
    growth = [(last - first) / 1_000_000 for first, last in zip(held[0], held[-1], strict=True)]
    print(
        f"  memory of API and worker: {_megabytes(held[0])} MB after {WINDOW} jobs, {_megabytes(held[-1])} MB after all"
    )
    return all(
        [
            verdict("ratio of the medians", last / first, 1.1),
            verdict("MB that the API grew", growth[0], MEMORY_MB),
            verdict("MB that the worker grew", growth[1], MEMORY_MB),
            flat,
        ]
    )


async def _left(genflow: Service, sim: Simulator) -> tuple[int, int]:
    """Entries in the server's history, and the bytes of all its files."""
    entries = len(await sim.get("/history"))
    return entries, await asyncio.to_thread(_bytes, genflow.folder / sim.name)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _megabytes(sizes: tuple[int, int]) -> str:
    return " and ".join(f"{size / 1_000_000:.0f}" for size in sizes)
