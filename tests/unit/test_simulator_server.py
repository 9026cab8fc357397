"""The server around the runs: books, restarts, several servers, old releases, and the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from genflow.simulator import SimulatorOptions, running
from tests.support.comfyui import Wire, png, simulated, three_nodes


async def until_up(wire: Wire) -> None:
    """Wait until a restarted server listens again."""
    async with asyncio.timeout(10):
        while True:
            try:
                await wire.get("/simulator/wait", params={"event": "restarted"})
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)
            else:
                return


# Books


async def test_the_books_count_by_prompt_and_by_submit() -> None:
    async with simulated() as (wire, _):
        prompt_id = str(uuid.uuid4())
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        for submit in (first, second, second):
            mark = {"genflow": {"submit": submit, "token": 1}}
            status, _ = await wire.post(three_nodes("books/a"), prompt_id, extra_data=mark)
            assert status == 200
        await wire.happened("ended", prompt_id, count=3)
        files = ["books/a_00001_.png", "books/a_00002_.png", "books/a_00003_.png"]
        assert await wire.book(prompt_id) == {
            "posts": 3,
            "executions": 3,
            "interruptions": 0,
            "files": files,
            "emptied": [],
            "deletions": 0,
            "submits": {
                first: {"posts": 1, "executions": 1, "interruptions": 0, "files": files[:1]},
                second: {"posts": 2, "executions": 2, "interruptions": 0, "files": files[1:]},
            },
        }


async def test_an_interruption_counts_for_its_prompt_and_its_submit() -> None:
    async with simulated(knobs={"hold": 2}) as (wire, _):
        mark = {"genflow": {"submit": "one", "token": 1}}
        prompt_id = await wire.queue(three_nodes(), extra_data=mark)
        await wire.happened("held", prompt_id)
        await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id})
        await wire.happened("interrupted", prompt_id)
        book = await wire.book(prompt_id)
        assert (book["interruptions"], book["submits"]["one"]["interruptions"], book["files"]) == (1, 1, [])


async def test_uploads_and_views_are_counted_and_a_view_belongs_to_its_prompt() -> None:
    async with simulated() as (wire, server):
        await wire.upload(png(), "a.png")
        await wire.upload(png(), "a.png")
        prompt_id, entry = await wire.run(three_nodes())
        await wire.get("/view", params=entry["outputs"]["3"]["images"][0])
        assert await wire.happened("view", prompt_id) == 1
        books = await wire.get("/simulator/books")
        assert (books["uploads"], books["views"]) == (2, 1)
        assert server.books.count("view", str(uuid.uuid4())) == 0


async def test_the_log_has_every_execution_in_order_without_overlap() -> None:
    async with simulated(seconds_per_megapixel=5.0) as (wire, _):
        ids = [await wire.queue(three_nodes()) for _ in range(4)]
        await wire.happened("ended", count=4)
        log = await wire.get("/simulator/log")
        assert [line[0] for line in log] == ids
        assert all(before[2] <= after[1] for before, after in itertools.pairwise(log))
        asked = 3 * 64 * 48 / 1e6 * 5.0 * 1000
        assert all(end - start >= asked - 1 for _, start, end in log)


async def test_waiting_ends_with_what_was_seen() -> None:
    async with simulated() as (wire, _):
        status, body = await wire.ask("GET", "/simulator/wait?event=ended&count=2&timeout=0.05")
        assert (status, body) == (504, {"error": "ended happened 0 times, not 2, within 0.05 s", "count": 0})
        status, body = await wire.ask("GET", "/simulator/wait?event=gone")
        assert (status, body["error"][:21]) == (400, "unknown event 'gone';")
        assert (await wire.ask("GET", "/simulator/wait?event=ended&count=x"))[0] == 400
        waiting = asyncio.create_task(wire.happened("ended"))
        await wire.queue(three_nodes())
        assert await waiting == 1


async def test_every_post_that_may_change_a_server_is_counted_and_nothing_else() -> None:
    async with simulated() as (wire, server):
        await wire.get("/prompt")
        await wire.knobs(view_fail=1)
        assert server.books.count("change", None) == 0
        prompt_id, _ = await wire.run(three_nodes())
        await wire.ask("POST", "/interrupt", json={})
        await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel")
        assert server.books.count("change", None) == 3


# Restarts


async def test_a_restart_forgets_everything_but_files_and_books() -> None:
    async with simulated() as (wire, server):
        done, entry = await wire.run(three_nodes())
        preview = three_nodes()
        preview["3"] = {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}
        _, shown = await wire.run(preview)
        await wire.upload(b"marker", "boot.txt", type="temp")
        await wire.knobs(hold=1)
        running_id = await wire.queue(three_nodes())
        await wire.happened("held", running_id)
        pending = await wire.queue(three_nodes())
        async with wire.socket("mine") as socket:
            await wire.knobs(restart={"down_s": 0.3}, hold=None)
            await socket.until(lambda event: event["type"] == "closed")
            closed = time.monotonic()
            assert socket.socket.close_code == 1006
            with pytest.raises(aiohttp.ClientConnectorError):
                await wire.get("/prompt")
        await until_up(wire)
        assert time.monotonic() - closed > 0.25
        assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 0}}
        assert await wire.get("/history") == {}
        for prompt_id in (done, running_id, pending):
            assert (await wire.ask("GET", f"/api/jobs/{prompt_id}"))[0] == 404
        assert (await wire.ask("GET", "/view", params=entry["outputs"]["3"]["images"][0]))[0] == 200
        assert (await wire.ask("GET", "/view", params=shown["outputs"]["3"]["images"][0]))[0] == 404
        assert (await wire.ask("GET", "/view", params={"filename": "boot.txt", "type": "temp"}))[0] == 404
        assert server.books.page(running_id).executions == 1
        assert all(end >= start for _, start, end in server.books.log())
        _, after = await wire.run(three_nodes())
        assert after["prompt"][0] == 0
        assert after["outputs"]["3"]["images"][0]["filename"] == "ok_00002_.png"


async def test_a_client_id_that_is_an_object_ends_the_server() -> None:
    async with simulated() as (wire, server):
        assert (await wire.post(three_nodes(), client_id={"a": 1}))[0] == 200
        async with asyncio.timeout(10):
            while True:
                try:
                    await wire.get("/prompt")
                except aiohttp.ClientConnectorError:
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
        await server.restart()
        assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 0}}


async def test_a_client_id_that_is_a_number_gets_no_events() -> None:
    async with simulated() as (wire, _), wire.socket("5") as socket:
        prompt_id = await wire.queue(three_nodes(), client_id=5)
        await wire.happened("ended", prompt_id)
        await socket.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert {event["type"] for event in socket.heard} == {"status"}


async def test_servers_of_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    options = SimulatorOptions(count=2, output_dir=tmp_path, seconds_per_megapixel=0)
    async with running(options) as servers, aiohttp.ClientSession() as session:
        assert [server.name for server in servers] == ["sim0", "sim1"]
        one, two = (Wire(session, server.url) for server in servers)
        prompt_id, _ = await one.run(three_nodes())
        assert (await two.ask("GET", f"/api/jobs/{prompt_id}"))[0] == 404
        assert (await two.get("/simulator/books"))["prompts"] == {}
        assert [path.name for path in (tmp_path / "sim0" / "output").rglob("*.png")] == ["ok_00001_.png"]
        assert list((tmp_path / "sim1" / "output").rglob("*.png")) == []


async def test_a_seed_makes_random_choices_repeatable() -> None:
    made = []
    for seed in (3, 3, 4):
        async with simulated(seed=seed) as (wire, _):
            _, reply = await wire.post(three_nodes())
            made.append(reply["prompt_id"])
    assert made[0] == made[1] != made[2]


async def test_the_temporary_folder_is_gone_at_the_end() -> None:
    async with simulated() as (wire, server):
        await wire.run(three_nodes())
        root = server.folders.paths["output"].parent
        assert root.exists()
    assert not root.parent.exists()


# Old releases


async def test_an_old_release_takes_any_id_and_has_no_jobs_routes() -> None:
    async with simulated(old=True) as (wire, _):
        status, reply = await wire.ask("POST", "/prompt", json={"prompt": three_nodes(), "prompt_id": None})
        assert (status, reply["prompt_id"]) == (200, "None")
        status, reply = await wire.post(three_nodes(), "UPPER")
        assert (status, reply["prompt_id"]) == (200, "UPPER")
        await wire.happened("ended", "UPPER")
        extra = (await wire.entry("UPPER"))["prompt"][3]
        assert "create_time" not in extra
        status, body = await wire.ask("GET", "/api/jobs/UPPER")
        assert (status, body) == (404, b"")
        assert (await wire.ask("POST", "/api/jobs/UPPER/cancel"))[0] == 405
        graph = three_nodes()
        graph["2"]["class_type"] = "NoSuchNode"
        status, body = await wire.post(graph)
        assert (status, body["error"]["type"]) == (400, "invalid_prompt")
        secret = {"api_key_comfy_org": "kept-in-sight"}
        _, entry = await wire.run(three_nodes(), extra_data=secret)
        assert entry["prompt"][3]["api_key_comfy_org"] == "kept-in-sight"


async def test_a_new_release_takes_secrets_out_of_sight() -> None:
    async with simulated() as (wire, _):
        _, entry = await wire.run(three_nodes(), extra_data={"api_key_comfy_org": "secret", "mine": 1})
        assert "api_key_comfy_org" not in entry["prompt"][3]
        assert entry["prompt"][3]["mine"] == 1


# The command

COMMAND = [sys.executable, "-c", "import typer; from genflow.cli.simulate import simulate; typer.run(simulate)"]


async def start(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | environment,
    )


async def ready(process: asyncio.subprocess.Process) -> dict[str, str]:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    told: dict[str, Any] = json.loads(line)
    return {str(name): str(url) for name, url in told["ready"].items()}


async def test_the_command_says_where_it_listens_and_ends_cleanly(tmp_path: Path) -> None:
    process = await start(
        "--count", "2", "--json", "--name", "gpu", "--busy", "1", "--knobs", '{"view_fail": 2}', TMPDIR=str(tmp_path)
    )
    try:
        addresses = await ready(process)
        assert list(addresses) == ["gpu0", "gpu1"]
        async with aiohttp.ClientSession() as session:
            wire = Wire(session, addresses["gpu1"])
            assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 1}}
            assert (await wire.get("/simulator/knobs"))["view_fail"] == 2
        assert len(os.listdir(tmp_path)) == 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert os.listdir(tmp_path) == []
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--script", "ok,maybe"], "unknown script word 'maybe'"),
        (["--knobs", '{"nope": 1}'], "unknown knob 'nope'"),
        (["--knobs", "[]"], "knobs must be a JSON object"),
        (["--count", "0"], "--count"),
        (["--vram", "8GiB"], "--vram takes whole numbers with commas between them, not '8GiB'"),
        (
            ["--count", "3", "--speed", "1,2"],
            "speed takes one value, or one for each server, not 2 values for 3 servers",
        ),
    ],
)
async def test_a_wrong_option_is_named_with_exit_code_2(arguments: list[str], words: str) -> None:
    process = await start(*arguments, COLUMNS="200")
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    assert words in errors.decode()


async def test_a_taken_port_is_exit_code_1() -> None:
    async with simulated() as (_, server):
        process = await start("--port", str(server.port))
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 1
        assert f"cannot listen on 127.0.0.1:{server.port}" in errors.decode()
