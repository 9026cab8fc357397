"""One job's way through the queue without a server: claim, four fenced checkpoints, finish, as a worker writes them."""

from __future__ import annotations

from uuid import UUID, uuid4

from genflow.postgres.pool import Pool
from genflow.protocol import HistoryEntry, Timing
from genflow.queue import DirectWriter, Ledger, Registry
from genflow.queue.hold import Hold
from genflow.queue.records import StoredOutput

ENTRY = HistoryEntry("success", None, {}, None, 0, 1_000, {})
SLOTS = 2


class Lane:
    """A worker with one server, and one job at a time."""

    def __init__(self, pool: Pool, server: str) -> None:
        self._writer = DirectWriter(pool)
        self._server = server
        self._server_id = 0
        worker = uuid4()
        self._registry = Registry(self._writer, worker)
        self._ledger = Ledger(self._writer, worker, Timing.from_lease(30.0), retention_s=3600.0)

    async def register(self) -> None:
        """Make worker and server known."""
        await self._registry.register_worker(name="bench", host="bench", version="0")
        server = {"name": self._server, "slots": SLOTS, "tags": [], "vram": None}
        [row] = await self._writer.write("register_server", server)
        self._server_id = row["id"]

    async def claim(self) -> Hold:
        """The next job. There must be one."""
        [(_, hold)] = await self._ledger.claim_unbound(self._server_id, slots=SLOTS, limit=1)
        return hold

    async def work(self, hold: Hold) -> None:
        """The four checkpoints and the finish of a claimed job."""
        intent = await self._ledger.intent(hold, submit=uuid4(), server_id=self._server_id, boot=None, slots=SLOTS)
        await self._ledger.receipt(hold, intent.no, number=0.0, client_id="bench")
        await self._ledger.running(hold, intent.no, deadline_s=60)
        await self._ledger.run_ended(hold, intent.no, ENTRY)
        await self._ledger.finish(hold, [_output(hold.job_id)])


def _output(job: UUID) -> StoredOutput:
    return StoredOutput(uuid4(), job.bytes * 2, job.bytes * 2, 1, "1", "images", 0, "a.png", "image", "image/png")
