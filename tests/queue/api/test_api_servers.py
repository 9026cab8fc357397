"""The fleet through the API: servers and workers as they are known, taken out and back; how things stand."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from uuid import uuid4

from genflow.failures import failure
from genflow.jobs import State
from genflow.queue import Registry
from tests.queue.conftest import Bench
from tests.support.api import Client
from tests.support.cli import Terminal

PATH = "/genflow/v1/servers"
NAME = "pod-3/gpu0"


async def test_a_server_is_drained_and_comes_back(api: Client, bench: Bench) -> None:
    server = await bench.server(NAME)
    await bench.enqueue()
    await bench.worker("w1")
    for _ in range(2):
        drained = (await api.post(f"{PATH}/{NAME}/drain")).json
        assert (drained["state"], drained["reason"], drained["open_submits"]) == ("draining", "drained by hand", 0)
    assert await bench.claim("w1", server) == []
    assert (await api.post(f"{PATH}/{NAME}/resume")).json["state"] == "ready"
    assert len(await bench.claim("w1", server)) == 1
    unknown = await api.post(f"{PATH}/pod-4/gpu0/drain")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert f"known servers: {NAME}" in unknown.json["error"]["message"]


async def test_a_forgotten_server_is_listed_only_where_it_is_asked_for(api: Client, bench: Bench) -> None:
    await bench.server(NAME, vram=24 * 2**30)
    assert (await api.post(f"{PATH}/{NAME}/forget")).json["state"] == "forgotten"
    assert (await api.get(PATH)).json["servers"] == []
    [shown] = (await api.get(f"{PATH}?all=true")).json["servers"]
    assert (shown["name"], shown["state"], shown["healthy"]) == (NAME, "forgotten", False)
    assert (shown["vram_bytes"], shown["seen_by"]) == (24 * 2**30, [])
    wrong = await api.get(f"{PATH}?all=1")
    assert (wrong.status, wrong.code, wrong.details["field"]) == (400, "invalid_request", "all")


async def test_a_server_that_was_just_seen_is_forgotten_only_with_yes(
    api: Client, bench: Bench, tmp_path: Path
) -> None:
    server = await bench.server(NAME)
    job = await bench.enqueue()
    ledger = await bench.worker("w1")
    [hold] = await bench.claim("w1", server)
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=2)
    await ledger.release(hold)
    await Registry(bench.writer, bench.worker_ids["w1"]).probed(server, url="http://10.0.0.1:8188", healthy=True)
    terminal = Terminal(tmp_path, api.url)
    refused = await terminal.run("servers", "forget", NAME)
    refused.says("or say --yes")
    row = await bench.row(job)
    assert (refused.status, row["server_id"]) == (1, server), "nothing was given up"
    done = await terminal.run("servers", "forget", NAME, "--yes")
    assert (done.status, done.out) == (0, f"{NAME}: forgotten, 0 prompt(s) of ours there\n")
    row = await bench.row(job)
    assert (row["state"], row["server_id"], row["resubmits"]) == (State.QUEUED, None, 1), "it goes elsewhere, counted"


async def test_the_watched_status_is_shown_again(api: Client, bench: Bench, tmp_path: Path) -> None:
    async with Terminal(tmp_path, api.url).running("status", "--watch") as command:
        shown = command.process.stdout
        assert shown is not None
        async with asyncio.timeout(30):
            await shown.readuntil(b"queue     0 queued")
            await bench.enqueue()
            await shown.readuntil(b"queue     1 queued")
        command.process.send_signal(signal.SIGINT)
        ended = await command.end()
    assert (ended.status, "Traceback" in ended.err) == (130, False)


async def test_how_things_stand_is_one_look(api: Client, bench: Bench, tmp_path: Path) -> None:
    server = await bench.server(NAME, slots=4)
    jobs = [await bench.enqueue() for _ in range(4)]
    ledger = await bench.worker("w1")
    failing, bound, held = await bench.claim("w1", server, limit=3, slots=4)
    for hold in (failing, bound, held):
        intent = await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=4)
        if hold is failing:
            told = failure("out_of_memory", "no memory")
            await ledger.end_attempt(hold, state=State.FAILED, no=intent.no, failure=told)
        if hold is bound:
            await ledger.release(hold)
    found = (await api.get("/genflow/v1/status")).json
    assert found["jobs"] == {"queued": 1, "waiting": 0, "bound": 1, "held": 1, "canceling": 0}
    assert found["oldest_waiting_s"] >= 0
    assert found["last_hour"] == {"succeeded": 0, "failed": 1, "dead_letters_by_class": {"oom": 1}}
    assert (found["ended_per_minute"], found["waiting_for_lost_servers"]) == (0.2, 1)
    assert found["servers"] == [
        {"name": NAME, "state": "ready", "reason": None, "healthy": False, "open_submits": 2, "waiting_jobs": 1}
    ]
    assert found["workers"] == [{"name": "w1", "state": "working", "jobs": 1}]
    [worker] = (await api.get("/genflow/v1/workers")).json["workers"]
    assert (worker["name"], worker["jobs"], worker["id"]) == ("w1", 1, str(bench.worker_ids["w1"]))

    terminal = Terminal(tmp_path, api.url)
    screen = (await terminal.run("status")).out
    assert "1 queued, the oldest for" in screen
    assert "1 job(s) wait for servers that nobody sees" in screen
    assert "1 oom" in screen
    assert f"{NAME}: ready, NOT SEEN, 2 prompt(s), 1 waiting for it" in screen
    assert NAME in (await terminal.run("servers", "list")).out
    assert "w1" in (await terminal.run("workers")).out
    assert "draining, 2 prompt(s) of ours there" in (await terminal.run("servers", "drain", NAME)).out
    assert (await terminal.run("servers", "forget", "nobody")).status == 1
    assert len(jobs) == 4
