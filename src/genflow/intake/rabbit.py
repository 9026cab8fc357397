"""Jobs from RabbitMQ: a message is acknowledged once Postgres has its job (`accepted`), or once the job is over
(`terminal`). Failed jobs, and messages in which there is no job, go to the dead-letter queue with their reason.

The message's id is the job's, and a known id runs nothing, so that a message may be delivered as often as it likes.
docs/how-to/rabbitmq.md follows it through every crash.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal
from uuid import UUID

import structlog
from aio_pika.abc import AbstractIncomingMessage

from genflow import failpoints
from genflow.intake.rabbit_broker import CONFIRM_S, CONTENT_TYPE, BrokerLost, Session, open_session, place_of
from genflow.intake.rabbit_jobs import Desk, Refusal, through_outages
from genflow.intake.rabbit_message import write_message
from genflow.loops import cut_off, happens
from genflow.queue import Queue, Sweeps
from genflow.queue.records import DeadLetter
from genflow.queue.writer import OUTAGE
from genflow.telemetry import metrics

log = structlog.get_logger()

BATCH = 500
"""Messages whose jobs are committed together, at most."""
BATCH_BYTES = 8 * 1024 * 1024

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_SOONEST_LOOK_S, _LATEST_LOOK_S = 0.2, 1.0
_LETTERS_S = 1.0
_ROOM_S = 1.0
_LAST_WORDS_S = 15.0
"""Seconds that a leaving process has to record, acknowledge, tell and give back what it took."""


class RabbitIntake:
    """Takes the jobs of one queue, again and again through outages of the broker and of the database."""

    def __init__(
        self,
        queue: Queue,
        desk: Desk,
        sweeps: Sweeps,
        *,
        url: str,
        name: str,
        ack: Literal["terminal", "accepted"],
        prefetch: int,
        lease_s: float,
    ) -> None:
        self._queue = queue
        self._desk = desk
        self._sweeps = sweeps
        self._url = url
        self._name = name
        self._ack = ack
        self._prefetch = prefetch
        self._lease_s = lease_s
        self._draining = asyncio.Event()
        self._leaving = asyncio.Event()
        self._look = asyncio.Event()
        self._session: Session | None = None
        self._held: dict[int, UUID] = {}
        """Messages of this session whose jobs are not over: delivery tag to job."""
        self._down = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, whether the broker is there or not."""
        self._task = asyncio.create_task(self._run(), name="rabbit intake")

    def drain(self) -> None:
        """Take no more messages; those whose jobs end are still acknowledged."""
        self._draining.set()
        if self._session is not None:
            self._session.wake()

    async def stop(self) -> None:
        """Acknowledge what is over, give the rest back to the broker, and end."""
        self.drain()
        self._leaving.set()
        self._look.set()
        if self._task is not None:
            if self._session is not None:
                await asyncio.wait({self._task}, timeout=_LAST_WORDS_S)
            await cut_off([self._task])

    # --- the connection ---

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._leaving.is_set():
            try:
                async with open_session(
                    self._url, self._name, prefetch=self._prefetch, shown_as=f"genflow {self._ack}"
                ) as session:
                    log.info("broker_connected", broker=place_of(self._url), queue=self._name)
                    self._down, pause_s = False, _FIRST_PAUSE_S
                    await self._serve(session)
            except BrokerLost as error:
                if not self._down:
                    log.warning("broker_lost", broker=place_of(self._url), why=str(error), then="tries again")
                self._down = True
            except Exception:
                log.exception("intake_failed", queue=self._name, next="genflow status")
                pause_s = _LONGEST_PAUSE_S
            await happens(self._leaving, pause_s * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _serve(self, session: Session) -> None:
        """Work on this connection until this process leaves. BrokerLost where the connection ends first."""
        self._session, self._held = session, {}
        accepting = asyncio.create_task(self._accept(session))
        work = [accepting, asyncio.create_task(self._tell(session))]
        if self._ack == "terminal":
            # What comes in last may be over already: the last look is after it.
            accepting.add_done_callback(lambda _: self._look.set())
            work.append(asyncio.create_task(self._settle(session, accepting)))
        lost = asyncio.create_task(session.end())
        try:
            await _all_of(work, lost)
            await session.give_back(list(self._held))
        finally:
            self._session = None
            await cut_off([*work, lost])

    # --- messages into jobs ---

    async def _accept(self, session: Session) -> None:
        await session.take()
        while not self._draining.is_set():
            if batch := await session.next_batch(BATCH, BATCH_BYTES):
                full = await self._bring_in(session, batch)
                if full:
                    await self._wait_for_room(session, full)
        await session.take_no_more()
        await session.give_back([])

    async def _bring_in(self, session: Session, batch: Sequence[AbstractIncomingMessage]) -> list[int]:
        """Record these messages' jobs and answer what can be answered; the tags of those for which there is no room."""
        outcome = await self._desk.bring_in(batch)
        for fate, messages in (("recorded", outcome.recorded), ("refused", outcome.refused), ("full", outcome.full)):
            metrics.DELIVERIES.labels(fate).inc(len(messages))
        if outcome.recorded:
            failpoints.hit("rabbit.after_record")
        await self._refuse(session, outcome.refused)
        recorded = {_tag(each.message): each.job_id for each in outcome.recorded}
        done = [_tag(refusal.message) for refusal in outcome.refused]
        if self._ack == "terminal":
            self._held |= recorded
            self._look.set()
        else:
            failpoints.hit("rabbit.before_ack")
            done += recorded
        if len(done) == len(batch) and not self._held:
            await session.ack(max(done), all_before=True)
        else:
            for tag in done:
                await session.ack(tag)
        return [_tag(message) for message in outcome.full]

    async def _refuse(self, session: Session, refusals: Sequence[Refusal]) -> None:
        if not refusals:
            return
        for refusal in refusals:
            log.warning("message_refused", message_id=refusal.message.message_id, why=refusal.reason)
        await asyncio.gather(
            *(
                session.tell_dead(
                    refusal.message.body,
                    refusal.reason,
                    message_id=refusal.message.message_id,
                    content_type=refusal.message.content_type,
                )
                for refusal in refusals
            )
        )
        failpoints.hit("rabbit.after_dead_confirm")

    async def _wait_for_room(self, session: Session, full: list[int]) -> None:
        """The queue is at its limit: leave the messages to the broker until there is room again."""
        await session.take_no_more()
        await session.give_back(full)
        log.warning("intake_paused", why="queue_full", queue=self._name)
        while not self._draining.is_set():
            if await through_outages(self._queue.has_room):
                log.info("intake_resumed", queue=self._name)
                await session.take()
                return
            await happens(self._draining, _ROOM_S)

    # --- jobs that are over ---

    async def _settle(self, session: Session, accepting: asyncio.Task[None]) -> None:
        """Acknowledge the messages whose jobs are over, until this process leaves and takes no more, then once more."""
        pause_s = _SOONEST_LOOK_S
        while True:
            last = self._leaving.is_set() and accepting.done()
            if held := dict(self._held):
                over = await through_outages(self._queue.settled, list({*held.values()}))
                for tag in [tag for tag, job in held.items() if job in over]:
                    failpoints.hit("rabbit.before_ack")
                    await session.ack(tag)
                    del self._held[tag]
                    log.debug("message_acknowledged", job=str(held[tag]))
                    pause_s = _SOONEST_LOOK_S
            if last:
                return
            if await happens(self._look, pause_s):
                pause_s = _SOONEST_LOOK_S
            pause_s = min(1.5 * pause_s, _LATEST_LOOK_S)
            self._look.clear()

    async def _tell(self, session: Session) -> None:
        """Tell the dead-letter queue of failed jobs, until this process leaves."""
        while not self._leaving.is_set():
            letter = await through_outages(self._sweeps.claim_dead_letter, self._name, lease_s=self._lease_s)
            if letter is None:
                await happens(self._leaving, _LETTERS_S)
            else:
                await self._tell_one(session, letter)

    async def _tell_one(self, session: Session, letter: DeadLetter) -> None:
        if letter.workflow is not None and letter.error is not None:
            body = write_message(letter.job_id, letter.workflow, metadata=letter.metadata, priority=letter.priority)
            try:
                async with asyncio.timeout(min(CONFIRM_S, self._lease_s / 2)):
                    await session.tell_dead(
                        body, reason_of(letter.error), message_id=str(letter.job_id), content_type=CONTENT_TYPE
                    )
            except (BrokerLost, TimeoutError) as error:
                with suppress(*OUTAGE):
                    await self._sweeps.postpone_chore(letter, delay_s=0.0)
                raise BrokerLost(f"a dead letter was not confirmed: {error}") from None
            failpoints.hit("rabbit.after_dead_confirm")
        await through_outages(self._sweeps.end_chore, letter)
        metrics.DEAD_LETTERS_TOLD.inc()
        log.info("dead_letter_told", job=str(letter.job_id), queue=self._name)
        self._look.set()


def reason_of(error: dict[str, Any]) -> str:
    """Why a job failed, as its dead letter says it."""
    return f"{error['code']}: {error['message']}"


async def _all_of(work: Sequence[asyncio.Task[None]], lost: asyncio.Task[None]) -> None:
    """Wait until all of `work` is done; raises what the first of it, or `lost`, raises."""
    left: set[asyncio.Task[None]] = {*work}
    while left:
        done, _ = await asyncio.wait({*left, lost}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        left -= done


def _tag(message: AbstractIncomingMessage) -> int:
    return message.delivery_tag or 0
