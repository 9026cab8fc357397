"""What watchers of a job are told: its end whatever fails on the way, its place, and nothing of a run that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from genflow.api import hub, looking
from genflow.api.hub import Hub, Watcher
from genflow.jobs import State, SubmitState
from genflow.queue import Hold
from genflow.queue.records import JobView, LiveNews
from tests.queue.api.test_api_jobs import submitted
from tests.queue.conftest import Bench

PROGRESS = {"value": 0.8, "nodes_done": 4, "nodes_total": 5}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_S", 0.01)
    monkeypatch.setattr(looking, "AGAIN_S", 0.01)
    monkeypatch.setattr(hub, "POSITION_S", 0.02)


async def sees(watcher: Watcher, wanted: Any) -> JobView:
    """The view once it is as wanted."""
    async with asyncio.timeout(10):
        while True:
            if watcher.view is not None and wanted(watcher.view):
                return watcher.view
            await watcher.news(1.0)


async def test_a_look_that_fails_is_made_up_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await bench.enqueue()
    read, failed = bench.queue.watches.views, 0
    ended = False

    async def views(jobs: Sequence[UUID]) -> dict[UUID, JobView]:
        nonlocal failed
        if ended and not failed:
            failed += 1
            raise RuntimeError("just now")
        return await read(jobs)

    monkeypatch.setattr(bench.queue.watches, "views", views)
    watching = Hub(bench.queue)
    with watching.watch(job) as watcher:
        await sees(watcher, lambda view: view.status == "queued")
        ended = True
        await bench.queue.cancel(job)
        await sees(watcher, lambda view: view.status == "canceled")
    assert failed == 1
    await watching.close()


async def test_a_place_too_far_to_count_is_told_once_it_is_near(bench: Bench) -> None:
    first, second = await bench.enqueue(), await bench.enqueue()
    watching = Hub(bench.queue)
    with watching.watch(second) as watcher:
        view = await sees(watcher, lambda view: view.queue_position == 2)
        watcher.view = JobView(**{name: getattr(view, name) for name in view.__slots__} | {"queue_position": None})
        await bench.queue.cancel(first)
        await sees(watcher, lambda view: view.queue_position == 1)
    await watching.close()


async def held_and_watched(bench: Bench) -> tuple[UUID, Hold]:
    job = await bench.enqueue()
    hold = await submitted(bench, job)
    await bench.queue.view(job, watched=True)
    return job, hold


async def progress_of(bench: Bench, job: UUID) -> Any:
    view = await bench.queue.view(job)
    assert view is not None
    return view.progress


async def test_a_failed_runs_progress_is_not_the_next_ones(bench: Bench) -> None:
    job, hold = await held_and_watched(bench)
    ledger = await bench.worker("w1")
    await ledger.live_progress({job: LiveNews(hold.token, PROGRESS, b"jpeg", "9")})
    assert await progress_of(bench, job) == PROGRESS
    await ledger.end_attempt(hold, state=State.QUEUED, no=1, submit_state=SubmitState.ENDED)
    assert await progress_of(bench, job) is None
    assert await bench.queue.watches.previews([job]) == {}


async def test_who_lost_the_job_writes_no_progress(bench: Bench) -> None:
    job, hold = await held_and_watched(bench)
    await bench.let_leases_run_out()
    await bench.sweeps.rescue()
    [(_, again)] = await (await bench.worker("w2")).claim_bound([(await bench.row(job))["server_id"]], 1)
    await (await bench.worker("w2")).live_progress({job: LiveNews(again.token, PROGRESS)})
    await (await bench.worker("w1")).live_progress({job: LiveNews(hold.token, PROGRESS | {"value": 0.1})})
    assert await progress_of(bench, job) == PROGRESS
