"""Composes the parts into one process: API, worker, upkeep. Start and stop stand here and nowhere else."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Literal
from uuid import UUID, uuid4

import structlog

from genflow import __version__, failpoints
from genflow.accounts import Accounts
from genflow.comfy import open_session
from genflow.errors import GenflowError
from genflow.fleet import Fleet
from genflow.fleet.choice import Lengths
from genflow.postgres.connect import database
from genflow.postgres.migrations import migrate
from genflow.postgres.pool import Pool, open_pool
from genflow.queue import Abilities, CoalescingWriter, DirectWriter, Erasure, Ledger, Queue, Registry, Sweeps
from genflow.queue.writer import OUTAGE
from genflow.settings import Settings
from genflow.storage.opening import open_store, place_of
from genflow.storage.store import Store
from genflow.telemetry import configure_logs
from genflow.upkeep import ApiUpkeep, WorkerUpkeep
from genflow.upkeep.retention import Retention
from genflow.worker import Worker
from genflow.worker.health import health_page
from genflow.worker.live import LiveProgress
from genflow.worker.telling import Teller, silent
from genflow.worker.tools import Tools

if TYPE_CHECKING:
    from genflow.intake.rabbit import RabbitIntake

log = structlog.get_logger()

ACCEPTED_PREFETCH = 1_000
API_CONNECTIONS = 8
INTAKE_CONNECTIONS = 4
WORKER_CONNECTIONS = 8
GOODBYE_S = 5.0
"""Seconds that an ending worker tries to take itself off the list, which goes by when it was last seen anyway."""


def prepare(settings: Settings) -> None:
    """Logs and failpoints as set. ValueError for a failpoint that doesn't exist."""
    configure_logs(settings.log_level, as_json=settings.log_json)
    failpoints.arm(settings.failpoints)


async def check_address(settings: Settings, accounts: Accounts) -> None:
    """Refuse to serve the world without keys. GenflowError `address_refused`."""
    if settings.insecure or settings.host == "localhost" or settings.auth == "keys":
        return
    if settings.auth == "auto" and await accounts.any():
        return
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise GenflowError(
            "address_refused",
            f"{settings.host} is not a loopback address and there are no keys: anybody who reaches it could use your"
            " GPUs. Make a key (genflow keys create NAME), listen on 127.0.0.1 behind a proxy that signs people in,"
            " or say --insecure.",
            details={"field": "host", "got": settings.host},
        )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[str]:
    """The database, migrated; its conninfo."""
    async with database(settings) as conninfo:
        await asyncio.to_thread(migrate, conninfo)
        yield conninfo


async def claim_store(settings: Settings, pool: Pool) -> Store:
    """The store of the settings. GenflowError `store_mismatch` where this database belongs to another store."""
    store = await asyncio.to_thread(open_store, settings)
    place = place_of(settings)
    marker = await store.marker()
    known = (await DirectWriter(pool).write("claim_store", {"marker": marker, "place": place}))[0]
    if str(known["marker"]) != marker:
        raise GenflowError(
            "store_mismatch",
            f"this process keeps its files in {place}, but the database belongs to the store that was first seen as"
            f" {known['place']}: all processes share one store (--store, or one folder --data)",
            status=409,
        )
    return store


@asynccontextmanager
async def run_api(settings: Settings, conninfo: str) -> AsyncIterator[str]:
    """Serve the API for as long as the context is open; its address."""
    # Here, not above: a worker process starts in half the time without FastAPI.
    import uvicorn

    from genflow.api.app import create_app
    from genflow.api.signing import LINKS

    class _QuietServer(uvicorn.Server):
        """Leaves the signals to `until_stopped`."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(await open_pool(conninfo, 2, API_CONNECTIONS))
        queue = Queue(pool, queue_limit=settings.queue_limit, retention_s=settings.retention_s)
        accounts = Accounts(queue.writer)
        await check_address(settings, accounts)
        listener = _listen(settings.host, settings.port)
        stack.callback(listener.close)
        store = await claim_store(settings, pool)
        upkeep = ApiUpkeep(
            Sweeps(DirectWriter(pool), lease_s=settings.lease),
            Retention(queue.erasure, store, grace_s=settings.blob_grace_s),
            collect_window_s=settings.collect_window_s,
        )
        secret = await queue.files.secret(LINKS)
        app = create_app(queue, store, settings, pool, link_secret=secret, accounts=accounts)
        server = _QuietServer(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=10,
                forwarded_allow_ips="127.0.0.1",
            )
        )  # fmt: skip
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
        upkeep.start()
        try:
            yield f"http://{settings.host}:{listener.getsockname()[1]}"
        finally:
            await upkeep.stop()
            await app.state.hub.close()
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        raise GenflowError(
            "address_in_use",
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port",
            status=503,
        ) from error


@asynccontextmanager
async def run_worker(
    settings: Settings,
    conninfo: str,
    *,
    tell: Teller = silent,
    on_choice: Callable[[str, Lengths], None] | None = None,
) -> AsyncIterator[tuple[UUID, str]]:
    """Work for as long as the context is open, then drain; the worker's id and the address of its health page.

    `tell` hears what happens to the jobs, `on_choice` which of several servers got a prompt.
    """
    worker_id = uuid4()
    timing = settings.timing()
    async with AsyncExitStack() as stack:
        # A write that waits for a row longer than the margin would be sent again too late.
        patience_s = 0.8 * timing.margin_s
        pool = await stack.enter_async_context(
            await open_pool(conninfo, 2, WORKER_CONNECTIONS, lock_timeout_s=patience_s)
        )
        heart_pool = await stack.enter_async_context(await open_pool(conninfo, 1, 1, lock_timeout_s=patience_s))
        session = await stack.enter_async_context(open_session())
        writer = DirectWriter(pool)
        registry = Registry(writer, worker_id)
        await registry.register_worker(name=settings.instance, host=socket.gethostname(), version=__version__)
        stack.push_async_callback(_leave_the_list, pool, worker_id)
        fleet = Fleet(
            registry,
            session,
            gpus=settings.gpu,
            instance=settings.instance,
            slots=settings.slots,
            probe_s=settings.probe_s,
            quarantine_s=settings.quarantine_s,
            alive_s=2 * timing.lease_s,
            no_server_s=settings.no_server_s,
            max_queue=settings.max_queue,
        )
        if on_choice is not None:
            fleet.on_choice = on_choice
        stack.push_async_callback(fleet.stop)
        await fleet.start()
        ledger = Ledger(CoalescingWriter(writer), worker_id, timing, retention_s=settings.retention_s)
        store = await claim_store(settings, pool)
        abilities = Abilities(writer)
        tools = Tools(
            ledger=ledger,
            fleet=fleet,
            store=store,
            store_marker=await store.marker(),
            live=LiveProgress(ledger),
            timing=timing,
            poll_s=settings.poll_ms / 1000,
            stop_grace_s=settings.stop_grace_s,
            collect_window_s=settings.collect_window_s,
            stuck_s=settings.stuck_s,
            tell=tell,
            sealer=settings.sealer,
            can=abilities.can,
            will_run=abilities.will_run,
            previews=settings.previews,
        )
        worker = Worker(
            tools,
            Ledger(DirectWriter(heart_pool, through_locks=False), worker_id, timing, retention_s=settings.retention_s),
            abilities,
            conninfo=conninfo,
            max_in_flight=settings.max_in_flight,
            claim_poll_s=settings.claim_poll_s,
        )
        upkeep = WorkerUpkeep(
            Sweeps(writer, lease_s=timing.lease_s),
            Retention(Erasure(writer), store, grace_s=settings.blob_grace_s),
            fleet,
            timing,
            collect_window_s=settings.collect_window_s,
            server_lost_after_s=settings.server_lost_after_s,
        )
        page = await stack.enter_async_context(health_page(fleet, host=settings.health_host, port=settings.health_port))
        await worker.start()
        upkeep.start()
        messages = None
        if settings.rabbitmq is not None:
            messages = _rabbit(
                settings, settings.rabbitmq, pool, ack="terminal", slots=sum(s.slots for s in fleet.servers)
            )
            messages.start()
        try:
            yield worker_id, page
        finally:
            if messages is not None:
                messages.drain()
            await upkeep.stop()
            await worker.stop(grace_s=settings.grace_s, how=settings.on_grace)
            if messages is not None:
                await messages.stop()


@asynccontextmanager
async def run_intake(settings: Settings, conninfo: str) -> AsyncIterator[str]:
    """Take jobs from RabbitMQ for as long as the context is open; where from, without the password."""
    from genflow.intake.rabbit_broker import place_of

    if settings.rabbitmq is None:
        raise ValueError("no broker is set")
    async with await open_pool(conninfo, 2, INTAKE_CONNECTIONS) as pool:
        messages = _rabbit(settings, settings.rabbitmq, pool, ack="accepted")
        messages.start()
        try:
            yield f"{settings.rabbitmq_queue} on {place_of(settings.rabbitmq)}"
        finally:
            await messages.stop()


def _rabbit(
    settings: Settings, url: str, pool: Pool, *, ack: Literal["terminal", "accepted"], slots: int = ACCEPTED_PREFETCH
) -> RabbitIntake:
    """An intake that acknowledges when the settings say, else at `ack`; with `terminal` it holds `slots` messages."""
    # Here, not above: a process without a broker starts sooner without its client.
    from genflow.intake.rabbit import RabbitIntake
    from genflow.intake.rabbit_jobs import Desk

    queue = Queue(pool, queue_limit=settings.queue_limit, retention_s=settings.retention_s)
    ack = settings.ack or ack
    return RabbitIntake(
        queue,
        Desk(queue, settings.rabbitmq_queue, settings.policy(), settings.max_workflow_bytes, lenient=settings.lenient),
        Sweeps(DirectWriter(pool), lease_s=settings.lease),
        url=url,
        name=settings.rabbitmq_queue,
        ack=ack,
        prefetch=settings.prefetch or (slots if ack == "terminal" else ACCEPTED_PREFETCH),
        lease_s=settings.lease,
    )


async def _leave_the_list(pool: Pool, worker_id: UUID) -> None:
    try:
        await Registry(DirectWriter(pool, patience_s=GOODBYE_S), worker_id).forget_worker()
    except OUTAGE:
        log.warning("left_without_a_word", worker=str(worker_id))


async def until_stopped(second: Callable[[], None], *, grace_s: float | None = None) -> asyncio.Event:
    """An event that SIGTERM or Ctrl-C sets; a second signal calls `second`, which ends the process at once.

    `grace_s` is what running jobs get, in seconds, for a process that has some; it is told then.
    """
    stopped = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stopped.is_set():
            second()
        elif grace_s is not None:
            log.info(f"{number.name}: no new jobs, {grace_s:g} s for the running ones")
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stopped
