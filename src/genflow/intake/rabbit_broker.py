"""One connection to RabbitMQ: queues declared, messages taken, acknowledged, given back and published.

A connection that breaks is thrown away with all that hung on it; whoever uses it opens another. The broker delivers
again what was not acknowledged, so nothing of it is worth keeping.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ChannelNotFoundEntity
from yarl import URL

from genflow.errors import GenflowError, clean_text
from genflow.intake.jobs_file import FileJob
from genflow.intake.rabbit_message import write_message

for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).setLevel(
        logging.CRITICAL
    )  # a line for each try; ours say when the broker went and came back

CONNECT_S = 10.0
CONFIRM_S = 10.0
"""Seconds in which the broker confirms a message that it has."""

DEAD = ".dead"
REASON_HEADER = "x-worker-reason"
_REASON_CHARACTERS = 2_000
CONTENT_TYPE = "application/json"
_DELIVERY_LIMIT = 1_000_000
"""Past the limit of a queue, 20 in RabbitMQ 4, the broker drops a message. A job that outlives the consumer timeout
uses up one delivery each time, so the queues that are declared here have no limit worth the name."""
_AT_ONCE = 200
"""Messages that are on their way to the broker and not yet confirmed, at most."""


class BrokerLost(Exception):
    """The broker is away, or closed the connection; its text says why and holds no password."""


def place_of(url: str) -> str:
    """The broker's address as it may be shown: without user and password."""
    parsed = URL(url)
    return f"{parsed.host}:{parsed.port or (5671 if parsed.scheme == 'amqps' else 5672)}{parsed.path.rstrip('/')}"


@contextmanager
def _broker(url: str) -> Iterator[None]:
    """Around calls of the client library: whatever ends them is a BrokerLost, unless this very task was canceled.

    A connection that closes makes calls under way end in errors of many kinds, CancelledError among them.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError:
        if task is not None and task.cancelling() > before:
            raise
        raise BrokerLost("the connection was closed") from None
    except Exception as error:
        told = str(error) or type(error).__name__
        for password in filter(None, (URL(url).password, URL(url).raw_password)):
            told = told.replace(password, "***")
        raise BrokerLost(clean_text(told, 300)) from None


class Session:
    """A connection to the broker on which one queue is consumed."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self.queue = queue
        self._lost = asyncio.Event()
        self._why = ""
        self._inbox: deque[AbstractIncomingMessage] = deque()
        self._arrived = asyncio.Event()
        self._consumer: str | None = None
        self._deliveries: AbstractChannel
        self._letters: AbstractChannel
        self._source: AbstractQueue

    async def _open(self, connection: AbstractConnection, prefetch: int) -> None:
        for name in (self.queue, self.queue + DEAD):
            await _declare(connection, name)
        self._letters = await connection.channel(publisher_confirms=True, on_return_raises=True)
        self._deliveries = await connection.channel(publisher_confirms=False)
        await self._deliveries.set_qos(prefetch_count=prefetch)
        self._source = await self._deliveries.get_queue(self.queue, ensure=False)
        for channel in (self._letters, self._deliveries):
            channel.close_callbacks.add(self._on_close)
        # The broker ends a consumer by itself, for example where its queue is deleted.
        (await self._deliveries.get_underlay_channel()).on_consumer_cancel_callbacks.add(self._on_cancel)

    def _on_close(self, _: Any, error: BaseException | None) -> None:
        self._why = self._why or clean_text(str(error or "closed"), 300)
        self._lost.set()

    def _on_cancel(self, _: Any) -> None:
        self._why = self._why or f"the broker ended the consumer; does the queue {self.queue} still exist?"
        self._lost.set()

    async def end(self) -> None:
        """Wait for the end of the connection, and raise it: BrokerLost."""
        await self._lost.wait()
        raise BrokerLost(self._why)

    # --- taking ---

    async def take(self) -> None:
        """Have messages delivered, up to the prefetch."""
        with _broker(self._url):
            self._consumer = await self._source.consume(self._deliver)

    async def take_no_more(self) -> None:
        """Have no more messages delivered; those that came stay in the inbox."""
        if self._consumer is not None:
            with _broker(self._url):
                await self._source.cancel(self._consumer, timeout=CONFIRM_S)
            self._consumer = None

    async def _deliver(self, message: AbstractIncomingMessage) -> None:
        self._inbox.append(message)
        self._arrived.set()

    def wake(self) -> None:
        """Have `next_batch` answer at once."""
        self._arrived.set()

    async def next_batch(self, messages: int, size: int) -> list[AbstractIncomingMessage]:
        """What is in the inbox, in the order of delivery: at most so many messages, and bytes save for the first one's.

        Waits for a message, or `wake`.
        """
        if not self._inbox:
            self._arrived.clear()
            await self._arrived.wait()
        batch: list[AbstractIncomingMessage] = []
        while self._inbox and len(batch) < messages:
            size -= len(self._inbox[0].body)
            if batch and size < 0:
                break
            batch.append(self._inbox.popleft())
        return batch

    # --- answering ---

    async def ack(self, tag: int, *, all_before: bool = False) -> None:
        """The message is done with, and with `all_before` every earlier one too."""
        with _broker(self._url):
            channel = await self._deliveries.get_underlay_channel()
            await channel.basic_ack(tag, multiple=all_before, wait=False)

    async def give_back(self, tags: Sequence[int]) -> None:
        """Have these messages delivered again, to whoever takes messages then, and all in the inbox."""
        tags = [*tags, *(message.delivery_tag or 0 for message in self._inbox)]
        self._inbox.clear()
        with _broker(self._url):
            channel = await self._deliveries.get_underlay_channel()
            for tag in tags:
                await channel.basic_nack(tag, requeue=True, wait=False)

    async def tell_dead(self, body: bytes, reason: str, *, message_id: str | None, content_type: str | None) -> None:
        """Put a message into the dead-letter queue, and wait until the broker has it for good."""
        message = _persistent(body, message_id, content_type, {REASON_HEADER: clean_text(reason, _REASON_CHARACTERS)})
        await _publish(self._url, self._letters, self.queue + DEAD, message)


@asynccontextmanager
async def open_session(url: str, queue: str, *, prefetch: int, shown_as: str) -> AsyncIterator[Session]:
    """A session on `queue`, both queues declared; nothing is taken yet. BrokerLost where the broker is away.

    `prefetch` messages are delivered and not yet answered at most; `shown_as` is what the broker's own pages show.
    """
    async with _connected(url, shown_as) as connection:
        session = Session(url, queue)
        with _broker(url):
            async with asyncio.timeout(CONNECT_S):
                await session._open(connection, prefetch)
        yield session


@asynccontextmanager
async def _connected(url: str, name: str) -> AsyncIterator[AbstractConnection]:
    with _broker(url):
        connection = await aio_pika.connect(url, timeout=CONNECT_S, client_properties={"connection_name": name})
    try:
        yield connection
    finally:
        with suppress(BrokerLost), _broker(url):
            async with asyncio.timeout(CONFIRM_S):
                await connection.close()


async def _declare(connection: AbstractConnection, name: str) -> None:
    """A durable quorum queue of this name; one that is there already stays as its owner declared it."""
    with suppress(ChannelNotFoundEntity):
        async with connection.channel() as channel:
            await channel.declare_queue(name, passive=True)
            return
    async with connection.channel() as channel:
        kind: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": _DELIVERY_LIMIT}
        await channel.declare_queue(name, durable=True, arguments=kind)


def _persistent(
    body: bytes, message_id: str | None, content_type: str | None, headers: dict[str, Any] | None = None
) -> aio_pika.Message:
    return aio_pika.Message(
        body, headers=headers, message_id=message_id, content_type=content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )  # fmt: skip


async def _publish(url: str, channel: AbstractChannel, queue: str, message: aio_pika.Message) -> None:
    with _broker(url):
        async with asyncio.timeout(CONFIRM_S):
            await channel.default_exchange.publish(message, routing_key=queue, mandatory=True)


async def publish(url: str, queue: str, jobs: Sequence[FileJob]) -> None:
    """Put these jobs as messages into `queue`, declared if need be; returns when the broker has confirmed them all.

    Messages are persistent, their id is the job's, their body is what `read_message` reads. After a failure some may
    be there and some not: publish all again, for a known id runs nothing.
    Raises GenflowError `broker_unavailable`.
    """
    try:
        async with _connected(url, "genflow enqueue") as connection:
            with _broker(url):
                for name in (queue, queue + DEAD):
                    await _declare(connection, name)
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            for start in range(0, len(jobs), _AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for job in jobs[start : start + _AT_ONCE]:
                        group.create_task(_publish(url, channel, queue, _message_of(job)))
    except (BrokerLost, ExceptionGroup) as error:
        why = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        raise GenflowError(
            "broker_unavailable", f"RabbitMQ at {place_of(url)} did not take the jobs: {why}", status=503
        ) from None


def _message_of(job: FileJob) -> aio_pika.Message:
    body = write_message(job.id, job.workflow, metadata=job.metadata, priority=job.priority)
    return _persistent(body, str(job.id), CONTENT_TYPE)
