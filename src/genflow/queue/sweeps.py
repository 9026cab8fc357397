"""Bounded sweeps over all jobs, run by every process alike (no leader), and the chores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog
from psycopg.types.json import Json

from genflow.failures import failure
from genflow.jobs import State
from genflow.queue.ledger import error_of
from genflow.queue.records import Chore, DeadLetter
from genflow.queue.writer import Writer
from genflow.telemetry import metrics

log = structlog.get_logger()

BATCH = 200
"""Rows that one sweep changes at most."""


class Sweeps:
    """What keeps jobs moving when nobody holds them."""

    def __init__(self, writer: Writer, *, lease_s: float) -> None:
        self._writer = writer
        self._lease_s = lease_s

    async def rescue(self) -> int:
        """Free jobs whose holder's lease ran out or whose deadline passed; how many."""
        killer = failure("kills_its_workers", "its lease ran out more often than max_takeovers allows")
        rows = await self._writer.write(
            "rescue", {"lease_s": self._lease_s, "limit": BATCH, "error": Json(error_of(killer))}
        )
        metrics.TAKEOVERS.inc(len(rows))
        for row in rows:
            log.warning(
                "lease_ran_out", job=str(row["id"]), takeovers=row["takeovers"], hung=row["hung"],
                now=State(row["state"]).name.lower(),
            )  # fmt: skip
        return len(rows)

    async def due(self) -> int:
        """Queue jobs whose back-off is over; how many."""
        return len(await self._writer.write("due", {"limit": BATCH}))

    async def announce(self) -> None:
        """Hint to every worker that there is work."""
        await self._writer.write("announce", {})

    async def expire(self) -> int:
        """End jobs whose start-by passed before any run; how many."""
        rows = await self._writer.write("expire", {"limit": BATCH})
        for row in rows:
            log.info("expired", job=str(row["id"]))
        return len(rows)

    async def cancel_unreachable(self, *, unseen_s: float) -> int:
        """Cancel jobs whose server was not seen for `unseen_s` seconds since the cancel; how many."""
        rows = await self._writer.write("cancel_unreachable", {"unseen_s": unseen_s, "limit": BATCH})
        for row in rows:
            log.warning("canceled_unreachable", job=str(row["id"]))
        return len(rows)

    async def uncollected(self, *, window_s: float, unseen_s: float) -> int:
        """Give up results whose server, unseen for `unseen_s`, stayed away for `window_s` seconds; how many."""
        gone = failure("output_unavailable", f"its server stayed away for the {window_s:g} s that files are waited for")
        rows = await self._writer.write(
            "uncollected",
            {
                "window_s": window_s,
                "unseen_s": unseen_s,
                "limit": BATCH,
                "class": gone.kind.value,
                "code": gone.code,
                "reason": gone.message,
                "error": Json(error_of(gone)),
            },
        )
        for row in rows:
            log.warning("output_unavailable", job=str(row["id"]))
        return len(rows)

    async def give_up_lost(self, *, unseen_s: float | None) -> int:
        """Free the jobs of forgotten servers, and by rule those of servers unseen for `unseen_s` seconds; how many."""
        rows = await self._writer.write("give_up_lost", {"unseen_s": unseen_s, "limit": BATCH})
        for row in rows:
            log.warning("server_given_up", job=str(row["id"]))
        return len(rows)

    async def late_chores(self) -> int:
        """Have servers asked about prompts that left a worker after its lease was lost; how many."""
        return len(await self._writer.write("late_chores", {}))

    async def claim_chore(self, server_ids: Sequence[int], *, lease_s: float) -> Chore | None:
        """The next chore on one of these servers, leased for `lease_s` seconds."""
        rows = await self._writer.write("claim_chore", {"servers": list(server_ids), "lease_s": lease_s})
        return _chore_of(rows[0]) if rows else None

    async def claim_scrub(self, server_id: int, *, lease_s: float) -> Chore | None:
        """The next scrub on this server, leased for `lease_s` seconds; `payload` holds the outputs written down."""
        rows = await self._writer.write("claim_scrub", {"server": server_id, "lease_s": lease_s})
        return _chore_of(rows[0]) if rows else None

    async def unused_inputs(self, server_id: int, job_id: UUID) -> list[str]:
        """The names of an ended job's inputs on a server that are to be emptied there."""
        rows = await self._writer.write("unused_inputs", {"server": server_id, "job": job_id})
        return [row["name"] for row in rows]

    async def inputs_emptied(self, server_id: int, job_id: UUID, names: Sequence[str]) -> None:
        """These inputs of a job were emptied on this server."""
        await self._writer.write("inputs_emptied", {"server": server_id, "job": job_id, "names": list(names)})

    async def claim_dead_letter(self, queue: str, *, lease_s: float) -> DeadLetter | None:
        """The next dead letter that this RabbitMQ queue is to be told of, leased for `lease_s` seconds."""
        rows = await self._writer.write("claim_dead_letter", {"queue": queue, "lease_s": lease_s})
        if not rows:
            return None
        row = rows[0]
        return DeadLetter(
            id=row["id"],
            token=row["token"],
            job_id=row["job_id"],
            error=row["error"],
            workflow=row["workflow"],
            metadata=row["metadata"] or {},
            priority=row["priority"] or 0,
        )

    async def end_chore(self, chore: Chore | DeadLetter) -> None:
        """Strike a chore off."""
        await self._writer.write("end_chore", _fence(chore))

    async def postpone_chore(self, chore: Chore | DeadLetter, *, delay_s: float) -> None:
        """Look at a chore again after `delay_s` seconds."""
        await self._writer.write("postpone_chore", _fence(chore) | {"delay_s": delay_s})

    async def count_run(self, job_id: UUID, submit: UUID) -> None:
        """A submit that was given up did run: mark it, and count a doubled run where another ran too."""
        rows = await self._writer.write("count_doubled", {"job": job_id, "submit": submit})
        if rows:
            metrics.DOUBLED_RUNS.inc()
            log.error("doubled_run", job=str(job_id), doubled=rows[0]["doubled"], next=f"genflow jobs show {job_id}")


def _fence(chore: Chore | DeadLetter) -> dict[str, Any]:
    return {"chore": chore.id, "token": chore.token}


def _chore_of(row: dict[str, Any]) -> Chore:
    return Chore(
        id=row["id"],
        kind=row["kind"],
        server_id=row["server_id"],
        job_id=row["job_id"],
        submit_no=row["submit_no"],
        submit=row["submit"],
        payload=row["payload"] or {},
        tries=row["tries"],
        token=row["token"],
    )
