"""Reads what a run has left: rows, books, files, the store's bytes, the broker's queues: the oracle's only I/O."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from blake3 import blake3

from chaos.clients import Clients
from chaos.house import QUEUE, QUEUE_LIMIT, SLOTS, House
from chaos.plan import SERVERS, Plan
from chaos.snapshot import JobRow, Line, OutputRow, Snapshot, SubmitRow
from genflow.intake.rabbit_broker import DEAD
from genflow.jobs import State, SubmitState
from genflow.storage.store import blob_path

_JOBS = """
select j.id::text, t.name, s.metadata ->> 'wish', j.state, j.attempt, j.takeovers, j.resubmits, j.doubled,
       extract(epoch from j.created_at)::float8, extract(epoch from j.cancel_at)::float8,
       extract(epoch from j.ended_at)::float8, j.error ->> 'code',
       (select k.key from genflow.job_keys as k where k.job_id = j.id and k.scope = 'submit' limit 1)
from genflow.jobs as j
join genflow.job_specs as s on s.job_id = j.id
join genflow.tenants as t on t.id = j.tenant_id
order by j.seq
"""
_SUBMITS = """
select u.job_id::text, u.no, u.uuid::text, split_part(v.name, '/', 2), u.token, u.state, u.attempt, u.executed,
       u.doubtful, u.stop_reason, extract(epoch from u.created_at)::float8, extract(epoch from u.ended_at)::float8
from genflow.submits as u
join genflow.servers as v on v.id = u.server_id
order by u.job_id, u.no
"""
_OUTPUTS = """
select id::text, job_id::text, submit_no, name, encode(blob_hash, 'hex')
from genflow.assets
where kind = 'output' and not partial
order by job_id, id
"""


async def gather(house: House, plan: Plan, clients: Clients) -> Snapshot:
    """The run as it stands now."""
    sql = house.genflow.sql
    jobs = [
        JobRow(
            id=row[0], tenant=row[1], wish=None if row[2] is None else int(row[2]), state=State(row[3]), attempt=row[4],
            takeovers=row[5], resubmits=row[6], doubled=row[7], created_at=row[8], cancel_at=row[9], ended_at=row[10],
            error=row[11] or "", key=row[12] or "",
        )
        for row in await sql(_JOBS)
    ]  # fmt: skip
    submits = [
        SubmitRow(
            job=row[0], no=row[1], uuid=row[2], server=row[3], token=row[4], state=SubmitState(row[5]), attempt=row[6],
            executed=row[7], doubtful=row[8], stop_reason=row[9] or "", created_at=row[10], ended_at=row[11],
        )
        for row in await sql(_SUBMITS)
    ]  # fmt: skip
    outputs = [
        OutputRow(id, job, submit_no, name, hash, await asyncio.to_thread(_stored, house.genflow.folder, hash))
        for id, job, submit_no, name, hash in await sql(_OUTPUTS)
    ]
    letters = [] if house.broker is None else await house.broker.all_of(QUEUE + DEAD)
    return Snapshot(
        wishes=plan.wishes,
        told=tuple(clients.told),
        events=tuple(house.events),
        lines=tuple(await asyncio.to_thread(_lines, house.genflow.folder / "books")),
        jobs=tuple(jobs),
        submits=tuple(submits),
        outputs=tuple(outputs),
        late_receipts=tuple(str(row[0]) for row in await sql("select submit from genflow.late_receipts")),
        dead_letters=tuple(str(row[0]) for row in await sql("select id from genflow.dead_letters")),
        dead_messages=tuple(letter.message_id or "" for letter in letters),
        messages_left=0 if house.broker is None else await house.broker.depth(QUEUE),
        chores_left=tuple(f"{kind} {job}" for kind, job in await sql("select kind, job_id::text from genflow.chores")),
        queued_left={name: await _queued(house, name) for name in SERVERS},
        files=await asyncio.to_thread(_files, house.genflow.folder / "servers"),
        memory=dict(house.memory),
        live=tuple(house.live),
        slots=SLOTS,
        queue_limit=QUEUE_LIMIT,
        guarded=house.guard,
    )


async def drained(house: House) -> bool:
    """Whether nothing is left to be done: no live job, no chore, no message, no news of a late receipt."""
    [(left,)] = await house.genflow.sql(
        "select (select count(*) from genflow.jobs where state < 10) + (select count(*) from genflow.chores)"
        " + (select count(*) from genflow.late_receipts where not chored)"
    )
    return left == 0 and (house.broker is None or await house.broker.depth(QUEUE) == 0)


def _stored(folder: Path, hash: str) -> str | None:
    path = folder / blob_path(bytes.fromhex(hash))
    return blake3(path.read_bytes()).hexdigest() if path.is_file() else None


def _lines(folder: Path) -> list[Line]:
    known = ("at", "event", "prompt", "submit")
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        server = path.stem.partition("-")[0]
        for text in path.read_text().splitlines():
            line: dict[str, Any] = json.loads(text)
            detail = {name: value for name, value in line.items() if name not in known}
            lines.append(
                Line(line["at"], server, line["event"], line.get("prompt", ""), line.get("submit", ""), detail)
            )
    return lines


async def _queued(house: House, server: str) -> tuple[str, ...]:
    async with house.genflow.http.get(f"http://127.0.0.1:{house.parts[server].port}/queue") as reply:
        queue = await reply.json()
    return tuple(item[1] for kind in ("queue_running", "queue_pending") for item in queue[kind])


def _files(folder: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for server in sorted(folder.iterdir()):
        below = {kind: server / kind for kind in ("output", "input")}
        found[server.name.partition("-")[0]] = {
            f"{kind}/{path.relative_to(root)}": path.stat().st_size
            for kind, root in below.items()
            for path in root.rglob("*")
            if path.is_file()
        }
    return found
