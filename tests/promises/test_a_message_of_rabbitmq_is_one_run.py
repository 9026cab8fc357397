"""A message of RabbitMQ is one run and one acknowledgement, or a dead letter, whatever dies: worker, intake, broker."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.intake.jobs_file import FileJob
from genflow.intake.rabbit_broker import REASON_HEADER, publish
from tests.support.cli import Ended, Terminal
from tests.support.postgres import TestServer
from tests.support.rabbit import PASSWORD, Broker, running_broker
from tests.support.service import LEASE_S, Process, Service, service, small_workflow, until

LOAD = 1_000
SUCCESSORS = 3
pytestmark = pytest.mark.xdist_group("rabbitmq")  # one broker for all

REFUSED_BY_THE_SERVER = {"class_type": "LoadImage", "inputs": {"image": "nobody_has_this.png"}}
"""Only the server knows which files lie in its folders."""


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as started:
        yield started


@pytest.fixture
async def broker(node: Broker) -> Broker:
    """The broker, up."""
    await asyncio.to_thread(node.wait)
    return node


_colors = itertools.count()


def new_jobs(count: int, **nodes: Any) -> list[FileJob]:
    """Jobs of the small workflow, each of another color, with some of its nodes replaced."""
    return [
        FileJob(line=0, id=uuid4(), workflow=json.dumps(small_workflow(color=color) | nodes))
        for color in itertools.islice(_colors, count)
    ]


class Renders:
    """One test's queue on the broker, and the processes that take from it."""

    def __init__(self, genflow: Service, broker: Broker) -> None:
        self.genflow = genflow
        self.broker = broker
        self.name = f"renders-{uuid4().hex[:8]}"
        self.takers: list[Process] = []
        self.again: Callable[[], Awaitable[Process]]

    async def publish(self, jobs: list[FileJob]) -> list[UUID]:
        await publish(self.broker.url, self.name, jobs)
        return [job.id for job in jobs]

    async def enqueue(self, jobs: list[FileJob]) -> Ended:
        """Publish a jobs file with the command."""
        file = self.genflow.folder / f"{self.name}.jsonl"
        file.write_text("\n".join(f'{{"id": "{job.id}", "workflow": {job.workflow}}}' for job in jobs))
        words = ("enqueue", str(file), "--queue", self.name)
        return await Terminal(self.genflow.folder, "").run(*words, GENFLOW_RABBITMQ=self.broker.url)

    async def worker(self, name: str, **options: Any) -> Process:
        self.again = functools.partial(self.worker, "successor")
        self.takers.append(await self.genflow.worker(name, rabbitmq=self.broker.url, queue=self.name, **options))
        return self.takers[-1]

    async def intake(self, *, failpoints: str = "", queue_limit: int = 10_000, prefetch: int = 1_000) -> Process:
        self.again = self.intake
        taker = await self.genflow.start(
            "intake", "intake", "--json", f"--rabbitmq={self.broker.url}", f"--queue={self.name}", f"--lease={LEASE_S}",
            f"--queue-limit={queue_limit}", f"--prefetch={prefetch}", "--log-level=debug",
            env={"GENFLOW_FAILPOINTS": failpoints},
        )  # fmt: skip
        self.takers.append(taker)
        return taker

    async def is_empty(self) -> None:
        """Wait until no message is left, neither waiting nor held; the takers are ended."""
        for _ in range(SUCCESSORS):
            await until(lambda: self.waiting(0), "every message is delivered")
            # What is held shows once its holders are gone.
            await asyncio.gather(*(taker.stop() for taker in self.takers))
            if await self.waiting(0):
                return
            # It was on its way as its taker left: the next one has it.
            await self.again()
        raise AssertionError(f"messages come back again and again\n{self.genflow.last_words(60)}")

    async def waiting(self, count: int) -> bool:
        """Whether so many messages wait for somebody to take them."""
        return await self.broker.depth(self.name) == count

    async def dead(self) -> dict[str, list[str]]:
        """The reasons of all dead letters by message id; they are taken out."""
        letters: dict[str, list[str]] = {}
        for message in await self.broker.all_of(f"{self.name}.dead"):
            letters.setdefault(message.message_id or "", []).append(str(message.headers[REASON_HEADER]))
        return letters

    async def states(self) -> dict[UUID, int]:
        return dict(await self.genflow.sql("select id, state from genflow.jobs"))

    async def ended(self, *jobs: UUID) -> None:
        """Wait until these jobs are terminal."""

        async def over() -> bool:
            states = await self.states()
            return all(states.get(job, 0) >= 10 for job in jobs)

        await until(over, f"{len(jobs)} jobs end")

    async def recorded(self, count: int) -> bool:
        """Whether so many jobs at least are in Postgres."""
        return len(await self.states()) >= count

    async def ran_once(self, *jobs: UUID) -> None:
        books = [await self.genflow.book(job) for job in jobs]
        assert books == [{"posts": 1, "executions": 1, "interruptions": 0}] * len(jobs)


async def test_good_ones_run_and_bad_ones_are_told_with_their_reason(genflow: Service, broker: Broker) -> None:
    renders = Renders(genflow, broker)
    await genflow.simulate_together(1)
    good = new_jobs(3)
    failing = new_jobs(1, **{"1": REFUSED_BY_THE_SERVER})
    other_body = [FileJob(line=0, id=good[0].id, workflow=failing[0].workflow)]
    unknown_class = new_jobs(1, **{"2": {"class_type": "NoSuchNode", "inputs": {}}})
    worker = await renders.worker("worker")
    published = await renders.enqueue([*good, *failing])
    assert published.status == 0, published.err
    assert "4 messages confirmed" in published.out
    await renders.publish([good[1], *other_body, *unknown_class])
    mine = str(uuid4())
    for body in (b"not json", b'{"id": "' + mine.encode() + b'"}', b"{}"):
        await broker.put(renders.name, body, mine)

    await renders.ended(*(job.id for job in good + failing))
    await until(lambda: worker.said("dead_letter_told"), "the failed job is told")
    await renders.is_empty()
    assert await renders.states() == {job.id: 10 for job in good} | {failing[0].id: 11}
    await renders.ran_once(*(job.id for job in good))
    letters = await renders.dead()
    assert [reason.partition(":")[0] for reason in letters.pop(str(good[0].id))] == ["message_id_reuse"]
    assert [reason.partition(":")[0] for reason in letters.pop(str(failing[0].id))] == ["invalid_workflow"]
    assert "NoSuchNode" in letters.pop(str(unknown_class[0].id))[0]
    assert sorted(reason.partition(":")[0] for reason in letters.pop(mine)) == ["invalid_message"] * 3
    assert letters == {}
    assert not worker.said(PASSWORD + "@"), "a password in the log"
    assert not worker.said(f":{PASSWORD}")


async def test_a_worker_dies_at_each_place_and_nothing_runs_twice(genflow: Service, broker: Broker) -> None:
    renders = Renders(genflow, broker)
    await genflow.simulate_together(1)
    first = await renders.worker("first", failpoints="rabbit.after_record=kill")
    [job] = await renders.publish(new_jobs(1))
    await first.died()
    assert await renders.states() == {job: 2}, "recorded, and delivered again"

    second = await renders.worker("second", failpoints="rabbit.before_ack=kill")
    await second.died()
    await renders.ran_once(job)

    third = await renders.worker("third", failpoints="rabbit.after_dead_confirm=kill")
    await until(lambda: third.said("message_known"), "the message is delivered again")
    await until(lambda: third.said("message_acknowledged"), "and acknowledged, for its job is over")
    [failing] = await renders.publish(new_jobs(1, **{"1": REFUSED_BY_THE_SERVER}))
    await third.died()

    fourth = await renders.worker("fourth")
    await until(lambda: fourth.said("message_acknowledged"), "the failed job's message is acknowledged")
    await renders.is_empty()
    letters = await renders.dead()
    assert list(letters) == [str(failing)], "the only thing that comes twice is a dead letter, under the same id"
    assert len(letters[str(failing)]) == 2
    assert await renders.states() == {job: 10, failing: 11}
    assert await genflow.sql("select 1 from genflow.chores") == []
    await renders.ran_once(job)


async def test_an_intake_dies_and_stops_at_the_limit_and_loses_nothing(genflow: Service, broker: Broker) -> None:
    renders = Renders(genflow, broker)
    await genflow.simulate_together(1)
    dying = await renders.intake(queue_limit=3, failpoints="rabbit.after_record=kill")
    jobs = await renders.publish(new_jobs(5))
    await dying.died()
    accepted = set(await renders.states())
    assert 1 <= len(accepted) <= 3

    intake = await renders.intake(queue_limit=3)
    await until(lambda: intake.said("intake_paused"), "the queue is at its limit")
    await until(lambda: renders.waiting(2), "what has no room is the broker's again")
    assert accepted <= set(await renders.states()) < set(jobs)
    assert len(await renders.states()) == 3
    await genflow.worker()
    await renders.ended(*jobs)
    await renders.is_empty()
    await renders.ran_once(*jobs)
    log = intake.log.read_text()
    assert log.count("intake_paused") == log.count("intake_resumed"), log
    assert await renders.dead() == {}


@pytest.fixture
async def another(test_server: TestServer, tmp_path: Path) -> AsyncIterator[Service]:
    """A genflow with a database of its own."""
    database = test_server.create()
    (tmp_path / "another").mkdir()
    async with service(database, tmp_path / "another") as running:
        yield running
    test_server.drop(database)


async def test_the_broker_is_away_at_the_start_loses_patience_and_is_killed(
    genflow: Service, another: Service, broker: Broker
) -> None:
    renders, many = Renders(genflow, broker), Renders(another, broker)
    jobs, loads = await renders.publish(new_jobs(3)), await many.publish(new_jobs(LOAD))
    # One orderly restart after its declaration, without which a quorum queue may not outlive a kill.
    await asyncio.to_thread(broker.stop)
    refused = await renders.enqueue(new_jobs(1))
    assert refused.status == 4
    refused.says("did not take the jobs")
    assert PASSWORD not in refused.err + refused.out
    [server] = await genflow.simulate()
    await genflow.api()
    worker = await renders.worker("worker", grace_s=0)
    broker.consumer_timeout_s = 0.5
    broker.start()
    await genflow.succeeded(await genflow.submit())
    await until(lambda: worker.said("broker_lost"), "the worker says that the broker is away")
    await server.knobs(hold=2)
    await asyncio.to_thread(broker.wait)
    await server.wait("held")
    await until(lambda: worker.log.read_text().count("timed out") >= 2, "the broker gives up waiting, twice")

    intake = await many.intake(prefetch=10)
    await until(lambda: many.recorded(1), "messages are on their way")
    await asyncio.to_thread(broker.kill)
    assert not await many.recorded(LOAD), "it was killed under load"
    broker.consumer_timeout_s = 1800.0
    broker.start()
    await server.knobs(release=True)
    await renders.ended(*jobs[:2])  # without the broker
    await asyncio.to_thread(broker.wait)
    await renders.ended(*jobs)
    await until(lambda: many.recorded(LOAD), "every message becomes a job")
    assert set(await many.states()) == set(loads)
    assert intake.alive
    await many.is_empty()

    await server.knobs(hold=2)
    [left] = await renders.publish(new_jobs(1))
    await server.wait("held", left)
    assert await worker.stop() == 0
    assert await broker.depth(renders.name) == 1, "what is not over is given back"
    await server.knobs(release=True)
    successor = await renders.worker("another")
    await renders.ended(left)
    await until(lambda: successor.said("message_acknowledged"), "and acknowledged by the one that gets it then")
    await renders.is_empty()
    await renders.ran_once(*jobs, left)
    assert await renders.dead() == {}
