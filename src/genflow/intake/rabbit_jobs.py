"""What messages become: jobs that Postgres has for good, or refusals with their reason."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar
from uuid import UUID

import structlog
from aio_pika.abc import AbstractIncomingMessage
from psycopg import errors as pg

from genflow.errors import GenflowError
from genflow.failures import Policy
from genflow.intake.admission import check_assets, check_runnable
from genflow.intake.rabbit_message import MessageJob, read_message
from genflow.queue import Arrival, Fate, Queue
from genflow.queue.records import NewJob
from genflow.queue.writer import OUTAGE

log = structlog.get_logger()

SCOPE = "rabbit"
_AGAIN_S = 0.5
_SMALL_BYTES = 64 * 1024

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message in which there is no job that could run."""

    message: AbstractIncomingMessage
    error: GenflowError

    @property
    def reason(self) -> str:
        """What its dead letter says."""
        return f"{self.error.code}: {self.error.message}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message whose job Postgres has."""

    message: AbstractIncomingMessage
    job_id: UUID


@dataclass(slots=True)
class Outcome:
    """What became of a batch of messages. `full` are those for which the queue has no room."""

    recorded: list[Recorded]
    refused: list[Refusal]
    full: list[AbstractIncomingMessage]


class Desk:
    """Reads messages and records their jobs. An outage of the database holds it up, and nothing else."""

    def __init__(
        self, queue: Queue, name: str, policy: Policy, max_workflow_bytes: int, *, lenient: bool = False
    ) -> None:
        self._queue = queue
        self._name = name
        self._policy = policy
        self._max_workflow_bytes = max_workflow_bytes
        self._lenient = lenient

    async def bring_in(self, batch: Sequence[AbstractIncomingMessage]) -> Outcome:
        """Record the jobs in these messages, together."""
        outcome = Outcome([], [], [])
        offers = await self._read(batch, outcome)
        while offers:
            now, offers = _each_id_once(offers)
            for (message, _), arrival in zip(now, await self._record(now), strict=True):
                if isinstance(arrival, GenflowError):
                    outcome.refused.append(Refusal(message, arrival))
                elif arrival.fate is Fate.FULL:
                    outcome.full.append(message)
                else:
                    outcome.recorded.append(Recorded(message, arrival.job_id))
                    if arrival.fate is Fate.KNOWN:
                        log.info("message_known", job=str(arrival.job_id), redelivered=bool(message.redelivered))
        return outcome

    async def _read(
        self, batch: Sequence[AbstractIncomingMessage], outcome: Outcome
    ) -> list[tuple[AbstractIncomingMessage, MessageJob]]:
        """The jobs in these messages, checked as the API checks them; the other messages are refused."""
        offers = []
        nodes = await through_outages(self._queue.known_nodes)
        for message in batch:
            try:
                told = await self._told(message)
                await through_outages(check_runnable, self._queue, told.graph, nodes, lenient=self._lenient)
                if told.assets:
                    await through_outages(check_assets, self._queue, told.assets)
            except GenflowError as error:
                outcome.refused.append(Refusal(message, error))
            else:
                offers.append((message, told))
        return offers

    async def _told(self, message: AbstractIncomingMessage) -> MessageJob:
        """What the message says; a large one is read beside the event loop, which renews a worker's leases."""
        read = functools.partial(
            read_message, message.body, message.message_id, max_workflow_bytes=self._max_workflow_bytes
        )
        return await asyncio.to_thread(read) if len(message.body) > _SMALL_BYTES else read()

    async def _record(
        self, offers: Sequence[tuple[AbstractIncomingMessage, MessageJob]]
    ) -> Sequence[Arrival | GenflowError]:
        """What became of each; an error where the database can't hold it, or holds another job under its id."""
        jobs = [
            NewJob(
                id=told.job.id, workflow=told.job.workflow, body_hash=told.body_hash, policy=self._policy,
                assets=tuple(ref.id for ref in told.assets), metadata=told.job.metadata, priority=told.job.priority,
            )
            for _, told in offers
        ]  # fmt: skip
        try:
            arrivals = await through_outages(self._queue.enqueue_many, jobs, scope=SCOPE, rabbit_queue=self._name)
        except (pg.IntegrityError, pg.DataError) as error:
            if len(offers) > 1:  # one is at fault, and the others must not suffer for it
                return [each for offer in offers for each in await self._record([offer])]
            gone = isinstance(error, pg.ForeignKeyViolation)
            why = "an input of it was deleted" if gone else type(error).__name__
            return [GenflowError("invalid_message", f"The database can't hold this job: {why}.")]
        return [_other_body(arrival) if arrival.fate is Fate.OTHER_BODY else arrival for arrival in arrivals]


async def through_outages(
    call: Callable[Arguments, Awaitable[Result]], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """The result of this call, made again and again while the database is away."""
    told = False
    while True:
        try:
            return await call(*args, **kwargs)
        except OUTAGE as error:
            if not told:
                log.warning("intake_waits_for_the_database", why=str(error).strip()[:200])
            told = True
            await asyncio.sleep(_AGAIN_S)


def _each_id_once(
    offers: Sequence[tuple[AbstractIncomingMessage, MessageJob]],
) -> tuple[list[tuple[AbstractIncomingMessage, MessageJob]], list[tuple[AbstractIncomingMessage, MessageJob]]]:
    """The first offer of each id, and the others, which come after it."""
    first: dict[UUID, tuple[AbstractIncomingMessage, MessageJob]] = {}
    later = []
    for offer in offers:
        if first.setdefault(offer[1].job.id, offer) is not offer:
            later.append(offer)
    return list(first.values()), later


def _other_body(arrival: Arrival) -> GenflowError:
    return GenflowError(
        "message_id_reuse",
        f"The id {arrival.job_id} belongs to another job already, with another workflow or other metadata; a new job"
        " needs a new id.",
        details={"field": "id", "job_id": str(arrival.job_id)},
    )
