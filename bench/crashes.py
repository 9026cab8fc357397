"""What crashes cost: runs doubled and jobs lost, for genflow and for the Celery worker, under one schedule of faults.

Each side has two workers and two simulated servers, and takes the same jobs from the same RabbitMQ. Each fault strikes
both at the same moment: a worker killed and started again, a worker frozen for about a lease, a server that restarts
without a memory, the broker killed. A doubled run is one that went to its end for a job that another run had made
already, read from the servers' own books; one whose server lost its memory within a moment after it is nobody's fault
and does not count. A job is lost where the broker had confirmed it and its picture was not stored at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol
from uuid import UUID

import aiohttp

from bench import chaos_report, figures
from bench.celery_way.side import CeleryClient, CeleryWorker, celery_workers
from bench.faults import LEASE_S, PAIR, Fault, doubled, schedule
from bench.place import place, verdict
from genflow.errors import GenflowError
from genflow.intake.jobs_file import FileJob
from genflow.intake.rabbit_broker import publish
from tests.support.rabbit import Broker, programs, running_broker
from tests.support.service import Process, Service, Simulator, until

SEED = 20_260_901
FAULTS = 120
JOB_EVERY_S = 0.6
RUN_S = 0.8
AT_MOST_S = 150.0
"""Seconds of the schedule that are carried out; a machine that starts workers slowly sees fewer faults."""
DRAIN_S = 120.0
QUEUE = "renders"
PATIENT = {"attempts": 30, "max_takeovers": 60, "max_resubmits": 60, "base_delay_ms": 500, "max_delay_ms": 10_000}
"""As patient as the Celery task's 30 retries."""
SIDE = 256


def workflow(job: UUID, number: int) -> dict[str, Any]:
    """A run of `RUN_S` that names its job in its file, another picture each time."""
    image = {"width": SIDE, "height": SIDE, "batch_size": 1, "color": number}
    return {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": str(job)}},
    }


class Side(Protocol):
    """One of the two, under fire."""

    name: str
    servers: list[Simulator]

    async def give(self, job: UUID, number: int) -> bool:
        """Give it a job; whether the broker has confirmed it."""

    async def kill(self, target: int) -> None:
        """SIGKILL a worker and start it again."""

    async def freeze(self, target: int, seconds: float) -> None:
        """SIGSTOP a worker, and SIGCONT."""

    async def stored(self, jobs: Sequence[UUID]) -> set[UUID]:
        """Which of these have their pictures."""

    def job_of(self, prompt: str, page: Mapping[str, Any]) -> str:
        """Whose run a prompt of its servers is."""


class GenflowSide:
    """Two genflow workers for two servers, jobs from RabbitMQ by `genflow intake`."""

    name = "genflow"

    def __init__(self, service: Service, servers: list[Simulator], broker: Broker) -> None:
        self.servers, self._service, self._broker = servers, service, broker
        self._workers: list[Process] = []

    async def start(self) -> None:
        """Start intake and workers."""
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in PATIENT.items()]
        await self._service.start(
            "intake", "intake", "--json", f"--rabbitmq={self._broker.url}", f"--queue={QUEUE}", f"--lease={LEASE_S}",
            "--no-scrub", *flags,
        )  # fmt: skip
        self._workers = list(await asyncio.gather(*(self._worker(number) for number in range(PAIR))))

    async def _worker(self, number: int) -> Process:
        return await self._service.worker(f"worker{number}", servers=self.servers, log_level="warning")

    async def give(self, job: UUID, number: int) -> bool:
        """See `Side`."""
        try:
            await publish(
                self._broker.url, QUEUE, [FileJob(line=0, id=job, workflow=json.dumps(workflow(job, number)))]
            )
        except GenflowError:
            return False
        return True

    async def kill(self, target: int) -> None:
        """See `Side`."""
        await self._workers[target].kill()
        self._workers[target] = await self._worker(target)

    async def freeze(self, target: int, seconds: float) -> None:
        """See `Side`."""
        self._workers[target].freeze()
        await asyncio.sleep(seconds)
        self._workers[target].thaw()

    async def stored(self, jobs: Sequence[UUID]) -> set[UUID]:
        """See `Side`."""
        found = await self._service.sql("select id from genflow.jobs where state = 10 and id = any(%s)", list(jobs))
        return {job for (job,) in found}

    def job_of(self, prompt: str, page: Mapping[str, Any]) -> str:
        """See `Side`: the prompt's id is the job's."""
        return prompt


class CelerySide:
    """Two Celery workers, each for a server of its own."""

    name = "Celery + RabbitMQ"

    def __init__(self, servers: list[Simulator], workers: list[CeleryWorker], client: CeleryClient) -> None:
        self.servers, self._workers, self._client = servers, workers, client

    async def give(self, job: UUID, number: int) -> bool:
        """See `Side`."""
        return await asyncio.to_thread(self._client.send, str(job), workflow(job, number))

    async def kill(self, target: int) -> None:
        """See `Side`."""
        await asyncio.to_thread(self._workers[target].kill)
        self._workers[target].start()
        with suppress(AssertionError):  # the broker is away; it goes on trying
            await self._workers[target].ready()

    async def freeze(self, target: int, seconds: float) -> None:
        """See `Side`."""
        self._workers[target].signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._workers[target].signal(signal.SIGCONT)

    async def stored(self, jobs: Sequence[UUID]) -> set[UUID]:
        """See `Side`."""
        return {job for job in jobs if self._client.done(str(job)) is not None}

    def job_of(self, prompt: str, page: Mapping[str, Any]) -> str:
        """See `Side`: the job stands in the names of the files."""
        return next((name.rpartition("/")[2][:36] for name in page["files"]), prompt)


def _place(fault: Fault) -> str:
    """What is down or frozen until a fault is over: nothing else strikes there meanwhile."""
    return fault.kind if fault.kind in ("broker", "restart") else f"worker {fault.target}"


class Fire:
    """Carries a schedule out on all sides at once, and gives them their jobs meanwhile."""

    def __init__(self, sides: Sequence[Side], broker: Broker) -> None:
        self._sides, self._broker = sides, broker
        self._targets: dict[str, asyncio.Lock] = {}
        self.struck: Counter[str] = Counter()
        self.restarts: dict[str, list[float]] = {}
        """When each server was restarted, in milliseconds, by its address."""
        self.accepted: dict[str, list[UUID]] = {side.name: [] for side in sides}

    async def burn(self, faults: Sequence[Fault]) -> None:
        """Strike all faults, each in its time; jobs come until the last."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            jobs = tasks.create_task(self._jobs(over))
            began = time.monotonic()
            async with asyncio.TaskGroup() as striking:
                for fault in faults:
                    await asyncio.sleep(max(0.0, began + fault.at_s - time.monotonic()))
                    target = self._targets.setdefault(_place(fault), asyncio.Lock())
                    await target.acquire()  # what was struck before is up again, on both sides
                    if time.monotonic() - began > AT_MOST_S:
                        break
                    striking.create_task(self._strike(fault)).add_done_callback(partial(_let_go, target))
            over.set()
            await jobs

    async def _strike(self, fault: Fault) -> None:
        if fault.kind == "broker":
            await asyncio.to_thread(self._broker.kill)
            await asyncio.to_thread(self._broker.start)
            await asyncio.to_thread(self._broker.wait)
        else:
            await asyncio.gather(*(self._strike_side(side, fault) for side in self._sides))
        self.struck[fault.kind] += 1

    async def _strike_side(self, side: Side, fault: Fault) -> None:
        if fault.kind == "restart":
            server = side.servers[fault.target]
            self.restarts.setdefault(server.url, []).append(time.time() * 1000)
            with suppress(aiohttp.ClientError):  # it is down from the restart before
                await server.knobs(restart={"down_s": fault.seconds})
        elif fault.kind == "kill":
            await side.kill(fault.target)
        else:
            await side.freeze(fault.target, fault.seconds)

    async def _jobs(self, over: asyncio.Event) -> None:
        number = 0
        async with asyncio.TaskGroup() as giving:
            while not over.is_set():
                job = UUID(int=random.getrandbits(128), version=4)
                number += 1
                for side in self._sides:
                    giving.create_task(self._give(side, job, number, over))
                await asyncio.sleep(JOB_EVERY_S)

    async def _give(self, side: Side, job: UUID, number: int, over: asyncio.Event) -> None:
        """As often as it takes until the broker has confirmed it. One that never was is not accepted."""
        while not await side.give(job, number):
            if over.is_set():
                return
            await asyncio.sleep(0.5)
        self.accepted[side.name].append(job)


async def run() -> bool:
    """Print what became of both; whether genflow doubled nothing and lost nothing."""
    faults = schedule(SEED, FAULTS)
    print(f"crashes: {FAULTS} faults in {faults[-1].at_s:.0f} s, seed {SEED}, a job every {JOB_EVERY_S:g} s")
    if programs() is None:
        raise SystemExit("RabbitMQ is not here; scripts/system_rabbitmq.sh brings it")
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(running_broker())
        genflow = await stack.enter_async_context(place())
        spm = RUN_S / (SIDE * SIDE / 1e6) / 2
        servers = await genflow.simulate(2 * PAIR, seconds_per_megapixel=spm)
        await asyncio.to_thread(broker.wait)
        figures.ran_with("RabbitMQ", broker.release)
        figures.ran_with("Celery", version("celery"))
        ours, theirs = servers[:PAIR], servers[PAIR:]
        urls = {server.name: server.url for server in theirs}
        workers = stack.enter_context(celery_workers(broker.url, urls, genflow.folder))
        client = CeleryClient(broker.url, genflow.folder)
        stack.callback(client.close)
        mine = GenflowSide(genflow, ours, broker)
        await mine.start()
        await asyncio.gather(*(worker.ready() for worker in workers))
        sides: list[Side] = [mine, CelerySide(theirs, workers, client)]
        fire = Fire(sides, broker)
        await _settle(broker, workers)
        await fire.burn(faults)
        found = [await _judge(side, fire) for side in sides]
    struck = sum(fire.struck.values())
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(fire.struck.items()))
    print(f"  faults that struck: {told}")
    rows = []
    for side, (lost, double) in zip(sides, found, strict=True):
        accepted = len(fire.accepted[side.name])
        per = [f"{1000 * each / struck:.0f}" for each in (double, lost)]
        rows.append([side.name, f"{accepted:,}", f"{struck:,}", str(double), str(lost), *per])
    if report := await chaos_report.counted():
        rows.append(chaos_report.row(*report))
    columns = ["", "jobs", "crashes", "runs doubled", "jobs lost", "doubled per 1,000 crashes", "lost per 1,000"]
    figures.table(columns, rows)
    figures.number("faults", dict(fire.struck))
    figures.number(
        "doubled_per_1000", {side.name: 1000 * double / struck for side, (_, double) in zip(sides, found, strict=True)}
    )
    figures.number(
        "lost_per_1000", {side.name: 1000 * lost / struck for side, (lost, _) in zip(sides, found, strict=True)}
    )
    lost, double = found[0]
    return all([verdict("genflow's runs doubled", double, 0), verdict("genflow's jobs lost", lost, 0)])


async def _settle(broker: Broker, workers: Sequence[CeleryWorker]) -> None:
    """One clean restart of the broker: a quorum queue that it declared a moment before a kill may not come back."""
    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)
    await asyncio.to_thread(broker.wait)


async def _judge(side: Side, fire: Fire) -> tuple[int, int]:
    """Jobs lost and runs doubled, once all is over or has had its time."""
    jobs = fire.accepted[side.name]

    async def all_stored() -> bool:
        return len(await side.stored(jobs)) == len(jobs)

    with suppress(AssertionError):
        await until(all_stored, "every job is stored", DRAIN_S, 0.3)
    lost = len(jobs) - len(await side.stored(jobs))
    runs, restarts = [], []
    for server in side.servers:
        pages = (await server.books())["prompts"]
        log = await server.get("/simulator/log")
        runs.append([(side.job_of(prompt, pages[prompt]), start, end) for prompt, start, end in log if end is not None])
        restarts.append(fire.restarts.get(server.url, []))
    return lost, doubled(runs, restarts, RUN_S)


def _let_go(target: asyncio.Lock, _: object) -> None:
    """What was struck is up again."""
    target.release()
