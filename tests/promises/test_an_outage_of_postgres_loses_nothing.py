"""Promise 10: Postgres and the API are killed in mid-burst; nothing accepted is lost, nothing runs twice, no storm."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest

from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.migrations import migrate
from tests.support.postgres import open_folder
from tests.support.service import LEASE_S, Service, service, small_workflow, until

JOBS = 40
CLIENTS = 5
SLOTS = 4


@pytest.fixture
async def genflow(tmp_path: Path) -> AsyncIterator[Service]:
    """A service on a Postgres of its own, which starts again whenever it dies."""
    with open_folder() as folder:
        postgres = EmbeddedPostgres(folder / "data", state=folder / "state")
        try:
            conninfo = await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(migrate, conninfo)
            async with service(conninfo, tmp_path) as running:
                yield running
                print(running.last_words(60))  # pytest shows it where the test failed
        finally:
            await asyncio.to_thread(postgres.stop)


class Burst:
    """Clients that each want a job, and ask again under its key until they know that they have it."""

    def __init__(self, genflow: Service) -> None:
        self._genflow = genflow
        self._turn = asyncio.Semaphore(CLIENTS)
        self.accepted: dict[int, UUID] = {}
        """Answered with 201."""
        self.known: dict[int, UUID] = {}
        """Learned from the refusal of a key that made a job before its answer was lost."""

    async def want(self, number: int) -> None:
        async with self._turn:
            while number not in self.accepted and number not in self.known:
                await self._ask(number)

    async def _ask(self, number: int) -> None:
        try:
            status, body = await self._genflow.request(
                "POST", "/api/v2/jobs", json={"workflow": small_workflow(color=number)},
                headers={"Idempotency-Key": f"job {number}"}, timeout=aiohttp.ClientTimeout(total=20),
            )  # fmt: skip
        except (aiohttp.ClientError, TimeoutError):
            status, body = 503, None
        if status == 201:
            self.accepted[number] = UUID(body["id"])
        elif status == 422:
            assert body["error"]["code"] == "idempotency_key_reuse", body
            self.known[number] = UUID(body["error"]["details"]["job_id"])
        else:
            assert status == 503, body
            await asyncio.sleep(0.1)  # a client's own pause


async def keep_killing_postgres(genflow: Service, seconds: float) -> int:
    """SIGKILL every postmaster that starts within this time; how many."""
    [(folder,)] = await genflow.sql("show data_directory")
    note = Path(folder) / "postmaster.pid"
    killed: set[int] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            pid = int(note.read_text().split()[0])
        except (FileNotFoundError, IndexError):
            pid = 0
        if pid and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        await asyncio.sleep(0.01)
    return len(killed)


async def test_killed_in_mid_burst(genflow: Service) -> None:
    servers = await genflow.simulate_pair(seconds_per_megapixel=5)
    api = await genflow.api()
    for name in ("first", "second"):
        await genflow.worker(name, slots=SLOTS)
    burst = Burst(genflow)
    wanted = [asyncio.create_task(burst.want(number)) for number in range(JOBS // 2)]
    await servers[0].wait("ended", count=2)
    for server in servers:
        await server.knobs(hold=2)
    await asyncio.gather(*(server.wait("held") for server in servers))

    # Longer than a lease: every lease of the fleet runs out while nobody can renew one.
    held = await genflow.sql("select id from genflow.jobs where state = 3")
    assert len(held) >= len(servers)
    wanted += [asyncio.create_task(burst.want(number)) for number in range(JOBS // 2, JOBS)]  # into the outage
    assert await keep_killing_postgres(genflow, LEASE_S + 1.0) >= 1
    await api.kill()
    await genflow.api()
    for server in servers:
        await server.knobs(release=True)
    await asyncio.gather(*wanted)

    async def all_ended() -> bool:
        return await genflow.sql("select count(*) from genflow.jobs where state < 10") == [(0,)]

    await until(all_ended, "every job ends", 60)
    jobs = burst.accepted | burst.known
    rows = await genflow.sql("select id, state, takeovers, resubmits, doubled from genflow.jobs")
    assert {row[0] for row in rows} == set(jobs.values())
    assert len(rows) == len(jobs) == JOBS, "one job for each key, lost answers or not"
    assert {row[1] for row in rows} == {10}
    assert sum(row[2] for row in rows) == 0, "an outage of the database is no death of workers"
    assert {row[3:] for row in rows} == {(0, 0)}
    books = [await genflow.book(job) for job in jobs.values()]
    assert books == [{"posts": 1, "executions": 1, "interruptions": 0}] * JOBS


async def test_a_short_outage_is_waited_out_inside_the_request(genflow: Service) -> None:
    await genflow.api()
    job = await genflow.submit()
    assert await keep_killing_postgres(genflow, 0.1) == 1
    paths = [f"/api/v2/jobs/{job}", f"/api/v2/jobs/{job}/workflow", "/api/v2/jobs?limit=5", f"/genflow/v1/jobs/{job}"]
    asked = [genflow.request("GET", path) for path in paths for _ in range(3)]
    asked.append(genflow.request("POST", "/api/v2/jobs", json={"workflow": small_workflow(color=1)}))
    answers = await asyncio.gather(*asked)
    assert [status for status, _ in answers] == [200] * 12 + [201]
    assert await genflow.cancel(job) == "canceled"
