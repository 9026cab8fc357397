"""A sampler's run is told as a real one was: the nodes' order, each step, previews with metadata."""

from __future__ import annotations

import json
from typing import Any

from tests.support.comfyui import Event, recorded, simulated


def line(event: Event) -> list[Any]:
    """An event shortened to what counts."""
    kind, data = event["type"], event["data"]
    if kind == "binary":
        length = int.from_bytes(data[4:8])
        return ["binary", int.from_bytes(data[:4]), list(json.loads(data[8 : 8 + length]))]
    if kind == "progress_state":
        return [kind, {key: [node["value"], node["max"], node["state"]] for key, node in data["nodes"].items()}]
    if kind == "progress":
        return [kind, data["node"], data["value"], data["max"]]
    if kind == "executing":
        return [kind, data["node"]]
    return [kind, data["nodes"]] if kind == "execution_cached" else [kind]


async def test_two_runs_with_different_seeds_are_told_as_recorded() -> None:
    models: dict[str, list[str]] = {"checkpoints": ["random_sd15.safetensors"]}
    async with simulated(knobs={"previews": True, "models": models}) as (wire, _), wire.socket("mine") as socket:
        flags = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
        await socket.socket.send_json(flags)
        await socket.next()
        for name in ("sampler", "sampler_again"):
            prompt, *lines = recorded(name)
            prompt_id = await wire.queue(prompt["prompt"], client_id="mine")
            heard = await socket.ended(prompt_id)
            assert [line(event) for event in heard if event["type"] != "status"] == [row["line"] for row in lines]


async def test_a_sampler_notices_an_interrupt_at_its_next_step() -> None:
    async with simulated(seconds_per_step=0.05) as (wire, server), wire.socket("mine") as socket:
        server.catalog.models["checkpoints"] = ["random_sd15.safetensors"]
        prompt, *_ = recorded("sampler")
        graph = prompt["prompt"]
        graph["9"]["inputs"]["steps"] = 100
        prompt_id = await wire.queue(graph, client_id="mine")
        await socket.until(lambda event: event["type"] == "progress" and event["data"]["value"] == 2)
        await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id})
        heard = await socket.ended(prompt_id)
        assert "execution_interrupted" in [event["type"] for event in heard]
        assert max(event["data"]["value"] for event in socket.heard if event["type"] == "progress") < 50
