"""One job's way through the queue without a server: claim, four fenced checkpoints, finish, as a worker writes them."""

from __future__ import annotations

from uuid import UUID, uuid4

from genflow.postgres.pool import Pool
from genflow.protocol import HistoryEntry, Timing
from genflow.queue import DirectWriter, Hold, Ledger, Registry, Writer
from genflow.queue.records import StoredOutput

ENTRY = HistoryEntry("success", None, {}, None, 0, 1_000, {})
SLOTS = 2


async def make_known(writer: Writer, worker: UUID, *servers: str, slots: int) -> list[int]:
    """Register a worker and these servers; their numbers."""
    await Registry(writer, worker).register_worker(name="bench", host="bench", version="0")
    numbers = []
    for name in servers:
        [row] = await writer.write("register_server", {"name": name, "slots": slots, "tags": [], "vram": None})
        numbers.append(int(row["id"]))
    return numbers


async def work_off(ledger: Ledger, hold: Hold, server: int, *, slots: int) -> None:
    """The four checkpoints and the finish of a claimed job."""
    intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=slots)
    await ledger.receipt(hold, intent.no, number=0.0, client_id="bench")
    await ledger.running(hold, intent.no, deadline_s=60)
    await ledger.run_ended(hold, intent.no, ENTRY)
    await ledger.finish(hold, [_output(hold.job_id)])


def _output(job: UUID) -> StoredOutput:
    return StoredOutput(uuid4(), job.bytes * 2, job.bytes * 2, 1, "1", "images", 0, "a.png", "image", "image/png")


class Lane:
    """A worker with one server, and one job at a time."""

    def __init__(self, pool: Pool, server: str) -> None:
        self._writer = DirectWriter(pool)
        self._server = server
        self._server_id = 0
        self._worker = uuid4()
        self._ledger = Ledger(self._writer, self._worker, Timing.from_lease(30.0), retention_s=3600.0)

    async def register(self) -> None:
        """Make worker and server known."""
        [self._server_id] = await make_known(self._writer, self._worker, self._server, slots=SLOTS)

    async def claim(self) -> Hold:
        """The next job. There must be one."""
        [(_, hold)] = await self._ledger.claim_unbound(self._server_id, slots=SLOTS, limit=1)
        return hold

    async def work(self, hold: Hold) -> None:
        """The four checkpoints and the finish of a claimed job."""
        await work_off(self._ledger, hold, self._server_id, slots=SLOTS)
