"""What a poll, a list and a submit cost beside the least that the same app can do: a select by key, a plain insert.

The routes take turns in one run, on one connection of the client's, with many jobs queued. The database is on a disk,
as anybody's is: both writes wait until it has them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from bench import figures
from bench.place import place, verdict
from tests.support.service import Service, small_workflow, until

QUEUED, ROUNDS = 1_500, 1_000
LIST_OF = 100


async def run() -> bool:
    """Print the three ratios; whether they hold."""
    print(f"polls: one client, {QUEUED} jobs queued, {ROUNDS} rounds in turns")
    async with _app() as (http, url):
        submits: list[float] = []
        inserts: list[float] = []
        jobs: list[str] = []
        for number in range(QUEUED):
            body = {"workflow": small_workflow(color=number)}
            made, seconds = await _timed(http.post(f"{url}/api/v2/jobs", json=body), 201)
            submits.append(seconds)
            jobs.append(made["id"])
            inserts.append((await _timed(http.post(f"{url}/bench/rows", json=body), 201))[1])
        selects: list[float] = []
        polls: list[float] = []
        lists: list[float] = []
        for number in range(ROUNDS):
            job = jobs[number * 7919 % QUEUED]
            selects.append((await _timed(http.get(f"{url}/bench/jobs/{job}"), 200))[1])
            polls.append((await _timed(http.get(f"{url}/api/v2/jobs/{job}"), 200))[1])
            lists.append((await _timed(http.get(f"{url}/api/v2/jobs?limit={LIST_OF}"), 200))[1])
    took = {
        "select by key": selects, "`GET` job": polls, f"list of {LIST_OF}": lists, "plain insert": inserts,
        "submit": submits,
    }  # fmt: skip
    rows = [
        [what, *(f"{1000 * _at(each, share):.1f} ms" for share in (0.5, 0.95, 0.99))] for what, each in took.items()
    ]
    figures.table(["", "p50", "p95", "p99"], rows)
    return all(
        [
            verdict("GET job p99 to select by key p99", _at(polls, 0.99) / _at(selects, 0.99), 3.0),
            verdict(f"list of {LIST_OF} p99 to select by key p99", _at(lists, 0.99) / _at(selects, 0.99), 5.0),
            verdict("submit p50 to plain insert p50", _at(submits, 0.5) / _at(inserts, 0.5), 2.0),
        ]
    )


@asynccontextmanager
async def _app() -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """The app in front of a fleet that is known and takes no new work."""
    async with place(on_disk=True) as genflow:
        await genflow.simulate()
        await genflow.api()
        await genflow.worker(log_level="warning", claim_poll_s=5.0)
        await until(lambda: _drained(genflow), "its only server is drained")
        command = [sys.executable, "-m", "bench.app", genflow.database, str(genflow.folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - returns at once
        try:
            assert process.stdout is not None
            port = (await asyncio.to_thread(process.stdout.readline)).strip()
            yield genflow.http, f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


async def _drained(genflow: Service) -> bool:
    status, _ = await genflow.request("POST", "/genflow/v1/servers/test/sim0/drain")
    return status == 200


async def _timed(asked: Any, wanted: int) -> tuple[Any, float]:
    """An answer and the seconds that it took."""
    began = time.perf_counter()
    async with asked as answer:
        body = await answer.json()
        took = time.perf_counter() - began
        if answer.status != wanted:
            raise SystemExit(f"{answer.status} for {answer.url}: {body}")
    return body, took


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
