"""Carries out the faults of a plan on a house, each at its time and for no longer than its seconds."""

from __future__ import annotations

import asyncio
import time

from chaos.house import House
from chaos.plan import Fault


async def strike(house: House, faults: tuple[Fault, ...], began: float) -> None:
    """Carry out all faults, each in a task of its own, and return once the last is over. `began` is monotonic."""
    async with asyncio.TaskGroup() as tasks:
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at_s - time.monotonic()))
            tasks.create_task(_strike(house, fault), name=f"fault {fault.no}")


async def _strike(house: House, fault: Fault) -> None:
    house.note(fault.name, fault.target, fault.seconds, fault.how)
    part = house.parts.get(fault.target)
    match fault.kind:
        case "kill":
            assert part is not None
            await house.kill(part, fault.how, fault.seconds)
        case "freeze":
            assert part is not None
            await house.freeze(part, fault.seconds)
        case "postgres":
            await house.kill_postgres(fault.seconds)
        case "broker":
            await house.kill_broker(fault.seconds)
        case "restart":
            await house.knobs(fault.target, restart={"down_s": fault.seconds})
        case "answer" if fault.how.startswith("view_"):
            await house.knobs(fault.target, **{fault.how: 2})
        case "answer":
            await house.knobs(fault.target, reply={"mode": fault.how, "seconds": fault.seconds})
        case "error":
            await house.knobs(fault.target, error=fault.how)
        case "clock":
            assert part is not None
            part.page.jump(fault.seconds)
        case "disk":
            assert part is not None
            part.page.fill(True)
            await asyncio.sleep(fault.seconds)
            part.page.fill(False)
        case "link":
            await _break(house, fault)
        case _:
            raise ValueError(f"no fault is called {fault.kind!r}")


async def _break(house: House, fault: Fault) -> None:
    link = house.links[fault.target]
    match fault.how:
        case "cut":
            link.cut()
        case "delay":
            link.delay(fault.seconds / 4)
        case "black_hole":
            link.black_hole()
        case _:
            link.half_close()
    await asyncio.sleep(fault.seconds)
    link.mend()
