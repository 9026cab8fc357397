"""One run from its plan to its snapshot: build the house, let clients and faults loose, heal, drain, look."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from chaos.clients import Clients
from chaos.faults import strike
from chaos.gather import drained, gather
from chaos.house import House, house
from chaos.plan import Plan
from chaos.snapshot import Snapshot
from tests.support.service import until

DRAIN_S = 180.0
"""Seconds after the last fault in which every job has to come to its end."""


async def run(plan: Plan, source: Path, keep: Path, *, guard: bool) -> Snapshot:
    """Carry a plan out. The processes' logs and the books are copied to `keep`."""
    async with house(source, plan.seed, guard=guard) as built:
        try:
            return await _run(plan, built)
        finally:
            await asyncio.to_thread(_keep, built.genflow.folder, keep)


async def _run(plan: Plan, built: House) -> Snapshot:
    clients = Clients(built, plan.wishes, plan.seed)
    began = time.monotonic()
    asking = asyncio.create_task(clients.go(began))
    await strike(built, plan.faults, began)
    await asyncio.sleep(max(0.0, began + plan.active_s - time.monotonic()))
    await built.heal()
    built.note("healed", "everything")
    with suppress(TimeoutError, AssertionError):
        async with asyncio.timeout(DRAIN_S):
            await asyncio.shield(asking)
            await until(lambda: _drained(built), "all is done", DRAIN_S, 0.3)
    clients.over.set()
    await asking
    return await gather(built, plan, clients)


async def _drained(built: House) -> bool:
    with suppress(psycopg.Error):
        return await drained(built)
    return False


def _keep(folder: Path, keep: Path) -> None:
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    for path in (*folder.glob("*.log"), *folder.glob("books/*.jsonl")):
        shutil.copy(path, keep / path.name)
