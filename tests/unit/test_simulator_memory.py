"""Models, GPU memory, /free, and what servers share, as docs/reference/simulator.md says."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from genflow.simulator import SimulatedServer, SimulatorOptions, running
from tests.support.comfyui import Wire, simulated, three_nodes
from tests.support.portraits import face_photo, portrait_graph

GIB = 1024**3


def seconds(server: SimulatedServer) -> list[float]:
    return [(end - start) / 1000 for _, start, end in server.books.log()]


async def outcome(wire: Wire, graph: dict[str, Any] | None = None) -> str:
    """How a run ends: the name of its last message, or the exception's type."""
    _, entry = await wire.run(graph or three_nodes())
    event, data = entry["status"]["messages"][-1]
    return str(data.get("exception_type", event))


async def test_another_checkpoint_costs_a_swap_and_the_loaded_one_is_known() -> None:
    async with simulated(swap_seconds=0.4) as (wire, server):
        await wire.upload(face_photo(), "face.jpg")
        other = portrait_graph("face.jpg", seed=3)
        other["1"]["inputs"]["ckpt_name"] = "dreamshaper_8.safetensors"
        loaded = []
        for graph in (portrait_graph("face.jpg", seed=1), portrait_graph("face.jpg", seed=2), other):
            await wire.run(graph)
            loaded.append((await wire.get("/simulator/books"))["loaded_model"])
        first, same, swapped = seconds(server)
        assert min(first, swapped) >= 0.4
        assert same < first / 2
        assert loaded == ["dummy_sd15.safetensors", "dummy_sd15.safetensors", "dreamshaper_8.safetensors"]
        await wire.ask("POST", "/free", json={"unload_models": True})
        assert (await wire.get("/simulator/books"))["loaded_model"] is None


async def test_memory_grows_until_a_run_fails_and_free_gives_it_back() -> None:
    async with simulated(vram=(8 * GIB,), knobs={"memory_growth": 3 * GIB}) as (wire, _):
        assert [await outcome(wire) for _ in range(4)] == [
            "execution_success", "execution_success", "torch.OutOfMemoryError", "torch.OutOfMemoryError",
        ]  # fmt: skip
        device = (await wire.get("/system_stats"))["devices"][0]
        assert (device["vram_total"], device["vram_free"]) == (8 * GIB, 0)
        await wire.ask("POST", "/free", json={"free_memory": True})
        assert (await wire.get("/system_stats"))["devices"][0]["vram_free"] == 7.5 * GIB
        assert await outcome(wire) == "execution_success"


async def test_a_restart_gives_memory_back_too() -> None:
    async with simulated(vram=(8 * GIB,), knobs={"memory_growth": 8 * GIB}) as (wire, server):
        assert await outcome(wire) == "torch.OutOfMemoryError"
        await server.restart()
        assert (await wire.get("/system_stats"))["devices"][0]["vram_free"] == 7.5 * GIB


async def test_a_bigger_server_takes_what_a_small_one_cannot_hold() -> None:
    large = three_nodes()
    large["1"]["inputs"] |= {"width": 2400, "height": 2400}
    for vram, expected in ((GIB, "torch.OutOfMemoryError"), (24 * GIB, "execution_success")):
        async with simulated(vram=(vram,)) as (wire, _):
            assert await outcome(wire, large) == expected
    async with simulated(vram=(2 * GIB,)) as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        assert await outcome(wire, portrait_graph("face.jpg")) == "torch.OutOfMemoryError", "the model is too large"


async def test_free_waits_until_the_running_prompt_ended() -> None:
    async with simulated() as (wire, _):
        await wire.knobs(hold=2)
        running_one = await wire.queue(three_nodes("free/a"))
        await wire.happened("held", running_one)
        assert await wire.ask("POST", "/free", json={"unload_models": True, "free_memory": True}) == (200, b"")
        assert (await wire.get("/simulator/books"))["freed"] == 0
        await wire.knobs(release=True)
        await wire.happened("freed")
        assert (await wire.book(running_one))["executions"] == 1
        await wire.ask("POST", "/free", json={})
        assert (await wire.get("/simulator/books"))["freed"] == 1, "nothing was wanted, nothing is freed"


async def test_an_interrupt_of_the_first_millisecond_is_lost_and_cancel_is_not() -> None:
    async with simulated() as (wire, server):
        await wire.knobs(hold=2, interrupt_lost=1)
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("held", prompt_id)
        assert await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id}) == (200, b"")
        assert server.boot.prompts.running is not None
        assert not server.boot.bench.interrupt.is_set()
        await wire.knobs(interrupt_lost=1)
        assert (await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel"))[1] == {"cancelled": True}
        await wire.happened("interrupted", prompt_id)


# Files


async def test_the_books_say_whose_file_was_emptied_and_the_name_stays_taken() -> None:
    async with simulated() as (wire, _):
        prompt_id, entry = await wire.run(three_nodes("mine/a"))
        image = entry["outputs"]["3"]["images"][0]
        await wire.upload(b"", image["filename"], subfolder="mine", type="output", overwrite="1")
        await wire.happened("emptied", prompt_id)
        await wire.upload(b"x", "photo.png")
        await wire.upload(b"", "photo.png", overwrite="1")
        await wire.ask("POST", "/history", json={"delete": [prompt_id, str(uuid.uuid4())]})
        await wire.happened("deleted", prompt_id)
        book = await wire.book(prompt_id)
        assert (book["emptied"], book["deletions"]) == (["mine/a_00001_.png"], 1)
        emptied = (await wire.get("/simulator/books"))["emptied"]
        assert [(each["type"], each["prompt"]) for each in emptied] == [("output", prompt_id), ("input", None)]
        assert emptied[0]["agent"].startswith("Python/")
        _, entry = await wire.run(three_nodes("mine/a"))
        assert entry["outputs"]["3"]["images"][0]["filename"] == "a_00002_.png"


async def test_servers_that_share_an_output_folder_race_to_a_name_unless_the_prefix_differs(tmp_path: Path) -> None:
    options = SimulatorOptions(count=2, seconds_per_megapixel=0, shared_output=tmp_path / "out")
    async with running(options) as servers, aiohttp.ClientSession() as session:
        wires = [Wire(session, server.url) for server in servers]

        async def names(*prefixes: str) -> list[str]:
            """The files of two prompts that come to their SaveImage at one time."""
            ids = []
            for wire, prefix in zip(wires, prefixes, strict=True):
                await wire.knobs(hold=3, save_delay_ms=500)
                ids.append(await wire.queue(three_nodes(prefix)))
                await wire.happened("held", ids[-1])
            await asyncio.gather(*(wire.knobs(release=True) for wire in wires))
            for wire, prompt_id in zip(wires, ids, strict=True):
                await wire.happened("ended", prompt_id)
            return [(await wire.book(prompt_id))["files"][0] for wire, prompt_id in zip(wires, ids, strict=True)]

        assert await names("ComfyUI", "ComfyUI") == ["ComfyUI_00001_.png", "ComfyUI_00001_.png"]
        assert await names("a/ComfyUI", "b/ComfyUI") == ["a/ComfyUI_00001_.png", "b/ComfyUI_00001_.png"]
        await wires[0].knobs(save_delay_ms=0)
        _, entry = await wires[0].run(three_nodes("a/ComfyUI"))
        assert entry["outputs"]["3"]["images"][0]["filename"] == "ComfyUI_00002_.png"
        assert len(list((tmp_path / "out").rglob("*.png"))) == 4


# One value for all servers, or one for each


async def test_speed_and_memory_are_one_for_all_servers_or_one_for_each() -> None:
    options = SimulatorOptions(count=4, speed=(1, 1, 2, 4), vram=(8 * GIB,))
    async with running(options) as servers:
        assert [server.knobs.get("speed_factor") for server in servers] == [1, 1, 2, 4]
        assert [server.knobs.get("vram") for server in servers] == [8 * GIB] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": (1, 2)}, "speed takes one value, or one for each server, not 2 values for 4 servers"),
        ({"vram": (1, 2, 3)}, "vram takes one value, or one for each server, not 3 values for 4 servers"),
        ({"speed": (0,)}, "a speed must be above 0"),
        ({"swap_seconds": -1}, "must not be negative"),
    ],
)
def test_an_option_out_of_its_range_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SimulatorOptions(count=4, **options)
