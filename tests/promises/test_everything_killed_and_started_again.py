"""The power goes: API, workers and both servers are gone in the middle of twenty jobs. Started again, all twenty end,
what was done is not done again, and the rest is begun in its old order.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

from tests.support.service import Service, small_workflow, until

JOBS, DONE_BEFORE = 20, 3


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; a server that comes back has to be where it was."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


async def start(genflow: Service, ports: list[int]) -> None:
    for number, port in enumerate(ports):
        [server] = await genflow.simulate(port=port, name=f"s{number}", seconds_per_megapixel=50)
        server.name = f"gpu{number}"
    await genflow.api()
    await genflow.worker("first", slots=1)
    await genflow.worker("second", slots=1)


async def runs(genflow: Service) -> Counter[str]:
    """How often each prompt was run to its end, by the servers that live."""
    ended: Counter[str] = Counter()
    for server in genflow.simulators:
        for prompt, *_ in await server.get("/simulator/log"):
            ended[prompt] += 1
    return ended


async def test_everything_killed_and_started_again(genflow: Service) -> None:
    ports = free_ports(2)
    await start(genflow, ports)
    jobs = [await genflow.submit(small_workflow(color=color)) for color in range(JOBS)]

    async def some_done() -> bool:
        return len(await genflow.sql("select 1 from genflow.jobs where state = 10")) >= DONE_BEFORE

    await until(some_done, f"{DONE_BEFORE} are done")
    await asyncio.gather(*(process.kill() for process in genflow.processes))
    done = [str(row[0]) for row in await genflow.sql("select id from genflow.jobs where state = 10 order by seq")]
    begun = [str(row[0]) for row in await genflow.sql("select distinct job_id from genflow.submits")]
    assert DONE_BEFORE <= len(done) <= len(begun) < JOBS

    genflow.simulators.clear()
    await start(genflow, ports)
    for job in jobs:
        await genflow.succeeded(job, within_s=60)
    again = await runs(genflow)
    assert set(again.values()) == {1}
    assert not set(done) & set(again), "what was done is not done again"
    for job in jobs:
        story = await genflow.story(job)
        assert (story["doubled"], story["attempts_spent"]) == (0, 1)
        assert story["resubmits"] <= (str(job) in begun and str(job) not in done), "only what its server forgot"
    rest = [str(job) for job in jobs if str(job) not in begun]
    first = [
        str(row[0]) for row in await genflow.sql("select job_id from genflow.submits where no = 1 order by created_at")
    ]
    places = {job: place for place, job in enumerate(job for job in first if job in rest)}
    # Two workers take turns, and one that finds its slot taken stands back for a moment: never more than a few places.
    assert max(abs(places[job] - place) for place, job in enumerate(rest)) <= len(rest) // 3, "in their old order"
