"""`genflow health --gpu` and `genflow check` look at servers themselves, with no service anywhere."""

from __future__ import annotations

import json
from pathlib import Path

from genflow.simulator import SimulatorOptions, running
from tests.support.cli import Terminal
from tests.support.service import small_workflow

NOWHERE = "http://127.0.0.1:9"


async def test_each_server_is_one_line_and_one_healthy_one_is_enough(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, NOWHERE)
    async with running(SimulatorOptions(vram=(2**30,), busy=2)) as [server]:
        here = f"--gpu=gpu0={server.url}"
        both = await terminal.run("health", here, f"--gpu=gpu1={NOWHERE}")
        assert both.out.splitlines() == [
            "gpu0: healthy, device SIMULATED, 512 MiB free, 2 prompt(s) in its queue",
            "gpu1: unreachable (ConnectionRefusedError)",
        ]
        assert both.status == 0
        told = (await terminal.run("health", here, "--json")).json["servers"][0]
        assert (told["name"], told["healthy"], told["depth"]) == ("gpu0", True, 2)
    gone = await terminal.run("health", f"--gpu=gpu1={NOWHERE}")
    assert (gone.status, gone.out) == (1, "gpu1: unreachable (ConnectionRefusedError)\n")


async def test_what_a_server_lacks_is_named_with_the_place_where_it_belongs(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, NOWHERE)
    models: dict[str, tuple[str, ...]] = {"checkpoints": ("other.safetensors",)}
    options = SimulatorOptions(models=models, knobs={"lacks": ["IPAdapterFaceID"]})
    async with running(SimulatorOptions()) as [whole], running(options) as [poor]:
        found = await terminal.run("check", f"--gpu=whole={whole.url}", f"--gpu=poor={poor.url}")
        lines = found.out.splitlines()
        assert lines[0] == "whole: has everything"
        assert "poor: lacks the file dreamshaper_8.safetensors (models/checkpoints)" in lines
        assert "poor: lacks the file ip-adapter-faceid-plusv2_sd15.bin (models/ipadapter)" in lines
        assert "poor: lacks the file CLIP-ViT-H-14-laion2B-s32B-b79K.safetensors (models/clip_vision)" in lines
        assert "poor: lacks the node IPAdapterFaceID (ComfyUI_IPAdapter_plus)" in lines
        assert found.status == 1
        graph = small_workflow() | {"7": {"class_type": "NoSuchNode", "inputs": {}}}
        (tmp_path / "own.json").write_text(json.dumps(graph))
        own = await terminal.run("check", "own.json", f"--gpu=whole={whole.url}")
        assert own.out == "whole: lacks the node NoSuchNode (a custom node)\n"
    away = await terminal.run("check", f"--gpu=away={NOWHERE}")
    assert away.status == 1
    assert away.out.startswith("away: unreachable (")
    assert (await terminal.run("check", "nowhere.json", f"--gpu=away={NOWHERE}")).status == 2
