"""Real jobs and their models, and what workers believe to hold of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from genflow.postgres.pool import Pool, open_pool
from genflow.protocol import Timing
from genflow.queue import DirectWriter, Hold, Ledger, Queue, Registry, Sweeps

from .rows import Job

WORKERS = ("w0", "w1")
LEASE_S, LEAP_S, FOREVER_S = 10_000.0, 40_000.0, 1e8
"""No test takes a lease's time, and a leap of the database's clock goes past every lease, back-off and start-by."""


@dataclass
class Real:
    """The queue on its database."""

    pool: Pool
    queue: Queue
    sweeps: Sweeps
    writer: DirectWriter
    workers: dict[str, Ledger]


@dataclass
class Twin:
    """A real job and its model."""

    id: UUID
    row: Job = field(default_factory=Job)
    submits: list[UUID] = field(default_factory=list)
    start_by: bool = False
    late: bool = False
    """A leap came since the job was accepted: its start-by, if it has one, has passed."""
    due: bool = False
    """A leap came since it began to wait."""
    cancel_is_old: bool = False
    """A leap came since its cancel was asked."""


@dataclass
class Held:
    """What a worker believes to hold. `stale` is what only the model knows."""

    twin: Twin
    worker: str
    hold: Hold
    server: int

    @property
    def stale(self) -> bool:
        return self.hold.token != self.twin.row.token

    @property
    def row(self) -> Job:
        return self.twin.row


async def open_real(database: str) -> Real:
    """The queue on this database, and two workers that use it without any server behind them."""
    pool = await open_pool(database, min_size=1, max_size=1)  # one session: the clock's offset is set in it
    direct = DirectWriter(pool)
    real = Real(pool, Queue(pool, queue_limit=100, retention_s=FOREVER_S), Sweeps(direct, lease_s=0.0), direct, {})
    for name in WORKERS:
        worker_id = uuid4()
        await Registry(direct, worker_id).register_worker(name=name, host="test", version="0")
        real.workers[name] = Ledger(direct, worker_id, Timing.from_lease(LEASE_S), retention_s=FOREVER_S)
    return real
