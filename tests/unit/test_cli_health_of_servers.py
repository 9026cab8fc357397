"""`genflow health --gpu` and `genflow check` look at servers themselves, with no service anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from genflow.comfy import ComfyServer
from genflow.comfy.checkup import Lack, check_graphs
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


async def test_what_is_wrong_with_a_workflow_and_what_its_nodes_look_for_at_run_time_is_told(tmp_path: Path) -> None:
    """Links, missing inputs, files that no description tells of; and the folder is the server's own word."""
    terminal = Terminal(tmp_path, NOWHERE)
    loader = {"model": ["9", 0], "preset": "FACEID PLUS V2", "lora_strength": 0.6, "provider": "CPU"}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 3], "filename_prefix": "a"}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["8", 0]}},
        "4": {"class_type": "VAEDecode", "inputs": {"samples": ["1", 0], "vae": ["9", 2]}},
        "5": {"class_type": "PreviewImage", "inputs": {"images": ["4", 0]}},
        "6": {"class_type": "IPAdapterUnifiedLoaderFaceID", "inputs": loader},
        "9": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "dreamshaper_8.safetensors"}},
    }
    (tmp_path / "own.json").write_text(json.dumps(graph))
    models: dict[str, tuple[str, ...]] = {
        "checkpoints": ("dreamshaper_8.safetensors",),
        "clip_vision": ("a.safetensors",),
        "loras": ("style.safetensors",),
    }
    async with running(SimulatorOptions(models=models)) as [server]:
        told = await terminal.run("check", "own.json", f"--gpu=g={server.url}")
        assert told.status == 1
        assert sorted(told.out.splitlines()) == [
            "g: lacks the file *faceid* (models/ipadapter)",
            "g: lacks the file *faceid* (models/loras)",
            "g: node 2 (SaveImage): images: node 1 has 1 outputs, counted from 0; there is no 3",
            "g: node 3 (SaveImage): the input filename_prefix is missing",
            "g: node 3 (SaveImage): the input images is linked to node 8, which is not in the workflow",
            "g: node 4 (VAEDecode): samples: it takes LATENT, and output 0 of node 1 is IMAGE",
        ]
        shown = (await terminal.run("check", "own.json", f"--gpu=g={server.url}", "--json")).json
        assert (shown["complete"], len(shown["lacks"]["g"]), len(shown["faults"]["g"])) == (False, 2, 4)


async def test_a_folder_that_genflow_does_not_know_is_found_by_its_files() -> None:
    """The choices of an input are the files of the folder that they come from."""

    class Server:
        async def object_info(self) -> dict[str, Any]:
            upscaler = {"input": {"required": {"model_name": [["a.pth", "b.pth"], {}]}}, "output": ["UPSCALE_MODEL"]}
            sampler = {"input": {"required": {"mode": [["fast", "slow"], {}]}}, "output": [], "output_node": True}
            return {"UpscaleModelLoader": upscaler, "Run": sampler}

        async def model_folders(self) -> list[str]:
            return ["loras", "upscale_models"]

        async def model_files(self, folder: str) -> frozenset[str]:
            return frozenset({"a.pth", "b.pth"} if folder == "upscale_models" else {"a.pth"})

    graph = {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "c.pth"}},
        "2": {"class_type": "Run", "inputs": {"mode": "slowest"}},
    }
    found = await check_graphs(cast(ComfyServer, Server()), [graph])
    assert found.lacks == [Lack("file", "c.pth", "models/upscale_models"), Lack("value", "slowest", "mode of Run")]
    assert found.faults == []
