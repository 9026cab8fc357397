"""The books on disk say what happened, and are whole after a kill of the server that kept them."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from pathlib import Path
from typing import Any

import aiohttp
from blake3 import blake3

from tests.support.comfyui import simulated, three_nodes
from tests.support.service import GENFLOW


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


async def test_what_happened_to_each_submit_stands_on_disk(tmp_path: Path) -> None:
    ids = [str(uuid.uuid4()) for _ in range(4)]
    words = ("ok", "error", "hang", "ok")
    async with simulated(journal=tmp_path, output_dir=tmp_path / "files", script=words) as (wire, _):
        for prompt in ids:
            mark = {"genflow": {"submit": f"of {prompt}", "token": 7}}
            await wire.post(three_nodes(), prompt, extra_data=mark)
        await wire.happened("running", ids[2])
        await wire.ask("POST", "/queue", json={"delete": [ids[3]]})
        await wire.ask("POST", "/interrupt", json={"prompt_id": ids[2]})
        await wire.happened("ended", ids[2])
        await wire.ask("POST", "/history", json={"delete": [ids[1]]})
    told = lines(tmp_path / "sim0.jsonl")
    assert told[0]["event"] == "booted"
    assert all(line["submit"] == f"of {line['prompt']}" for line in told[1:] if line["event"] != "deleted")
    assert {line["token"] for line in told if line["event"] == "posted"} == {7}
    events = {prompt: [line["event"] for line in told if line.get("prompt") == prompt] for prompt in ids}
    assert events[ids[0]] == ["posted", "running", "wrote", "ended"]
    assert events[ids[1]] == ["posted", "running", "ended", "deleted"]
    assert events[ids[2]] == ["posted", "running", "ended"]
    assert events[ids[3]] == ["posted", "removed"]
    assert [line["outcome"] for line in told if line["event"] == "ended"] == ["success", "IndexError", "interrupted"]
    [file] = [line for line in told if line["event"] == "wrote"]
    data = (tmp_path / "files" / "sim0" / file["kind"] / file["name"]).read_bytes()
    assert file["hash"] == blake3(data).hexdigest()


async def test_a_killed_server_leaves_its_books_and_the_next_goes_on_in_them(tmp_path: Path) -> None:
    prompt = str(uuid.uuid4())
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            GENFLOW, "simulate", "--json", f"--journal={tmp_path}", "--script=hang",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["ready"]["sim0"]
        async with aiohttp.ClientSession(url) as http:
            await http.post("/prompt", json={"prompt": three_nodes(), "prompt_id": prompt})
            await http.get("/simulator/wait?event=running")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert [line["event"] for line in lines(tmp_path / "sim0.jsonl")] == ["booted", "posted", "running"] * 2
