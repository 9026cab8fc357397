"""The simulator's stand-ins for each kind of output, as docs/reference/simulator.md says."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from PIL import Image

from genflow.simulator.catalog import Catalog
from genflow.simulator.kinds import COMPUTE
from tests.support.comfyui import Wire, simulated

IMAGE: dict[str, Any] = {
    "class_type": "EmptyImage",
    "inputs": {"width": 32, "height": 24, "batch_size": 2, "color": 0x336699},
}
AUDIO: dict[str, Any] = {"class_type": "EmptyAudio", "inputs": {"duration": 1.0, "sample_rate": 22050, "channels": 1}}
LATENT: dict[str, Any] = {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 32, "batch_size": 1}}
MESH: dict[str, Any] = {"class_type": "SimulatedMesh", "inputs": {}}
VIDEO: dict[str, Any] = {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 6.0}}


def graph(class_type: str, behind: dict[str, Any] | None = None, /, **inputs: Any) -> dict[str, Any]:
    """One output node, `9`, behind its source, `2`, behind a picture, `1`."""
    nodes = {"1": IMAGE, "2": behind} if behind is not None else {"1": IMAGE}
    return nodes | {"9": {"class_type": class_type, "inputs": inputs}}


async def made(wire: Wire, prompt: dict[str, Any]) -> dict[str, Any]:
    """What the output node reported."""
    _, entry = await wire.run(prompt)
    assert entry["status"]["completed"], entry["status"]["messages"]
    reported: dict[str, Any] = entry["outputs"]["9"]
    return reported


async def viewed(wire: Wire, item: dict[str, Any]) -> bytes:
    body: bytes = await wire.get(
        "/view", params={key: str(value) for key, value in item.items() if key in ("filename", "subfolder", "type")}
    )
    return body


def test_every_node_that_is_declared_is_computed() -> None:
    assert set(Catalog({}).all_object_info([])) == set(COMPUTE)


async def test_files_are_what_their_names_say() -> None:
    prefix = {"filename_prefix": "k/one"}
    combine = {"frame_rate": 8, "loop_count": 0, "pingpong": False, "save_output": True}
    webp = {"fps": 6.0, "lossless": True, "quality": 80, "method": "default"}
    async with simulated() as (wire, _):
        gif = await made(wire, graph("VHS_VideoCombine", images=["1", 0], format="image/gif", **combine, **prefix))
        (item,) = gif["gifs"]
        assert (item["filename"], item["type"], item["format"]) == ("one_00001.gif", "output", "image/gif")
        assert Image.open(io.BytesIO(await viewed(wire, item))).format == "GIF"
        (item,) = (await made(wire, graph("SaveAnimatedWEBP", images=["1", 0], **webp, **prefix)))["images"]
        assert Image.open(io.BytesIO(await viewed(wire, item))).format == "WEBP"
        # By their first bytes, for what Pillow does not read.
        rest = {
            ".mp4": graph("SaveVideo", VIDEO, video=["2", 0], format="auto", codec="auto", **prefix),
            ".webm": graph("SaveWEBM", images=["1", 0], codec="vp9", fps=6.0, crf=32.0, **prefix),
            ".flac": graph("SaveAudio", AUDIO, audio=["2", 0], **prefix),
            ".mp3": graph("SaveAudioMP3", AUDIO, audio=["2", 0], quality="V0", **prefix),
            ".opus": graph("SaveAudioOpus", AUDIO, audio=["2", 0], quality="64k", **prefix),
            ".glb": graph("SaveGLB", MESH, mesh=["2", 0], **prefix),
        }
        begin = {".mp4": b"ftyp", ".webm": b"\x1a\x45", ".flac": b"fLaC", ".mp3": b"ID3", ".opus": b"Ogg"}
        for ending, prompt in rest.items():
            ((item, *_), *_) = (await made(wire, prompt)).values()
            assert item["filename"].endswith(ending)
            assert begin.get(ending, b"glTF") in (await viewed(wire, item))[:8], ending
        (item,) = (await made(wire, graph("SaveLatent", LATENT, samples=["2", 0], **prefix)))["latents"]
        data = await viewed(wire, item)
        length = struct.unpack("<Q", data[:8])[0]
        tensor = json.loads(data[8 : 8 + length])["latent_tensor"]
        assert (tensor["shape"], len(data) - 8 - length) == ([1, 4, 4, 8], tensor["data_offsets"][1])


async def test_a_video_can_be_larger_than_memory_and_takes_no_room() -> None:
    size = 3_000_000_000
    async with simulated(knobs={"video_bytes": size}) as (wire, server):
        prompt = graph("SaveVideo", VIDEO, video=["2", 0], format="mp4", codec="h264", filename_prefix="big/v")
        (item,) = (await made(wire, prompt))["images"]
        file = server.folders.paths["output"] / "big" / item["filename"]
        assert file.stat().st_size == size
        assert file.stat().st_blocks * 512 < 1_000_000
        async with wire.session.head(f"{wire.url}/view", params=item) as reply:
            assert reply.headers["Content-Length"] == str(size)
        # The boxes add up: a reader that knows MP4 passes over the hole.
        with file.open("rb") as opened:
            place = 0
            while place < size:
                opened.seek(place)
                length, kind = struct.unpack(">I4s", opened.read(8))
                place += struct.unpack(">Q", opened.read(8))[0] if length == 1 else length
            assert (place, kind) == (size, b"free")


async def test_sound_has_one_name_for_ever_because_its_number_is_not_seen() -> None:
    async with simulated() as (wire, _):
        names = []
        for rate in (8000, 16000):
            audio = {"class_type": "EmptyAudio", "inputs": AUDIO["inputs"] | {"sample_rate": rate}}
            names.append((await made(wire, graph("SaveAudio", audio, audio=["2", 0], filename_prefix="s")))["audio"])
        assert names[0] == names[1]


async def test_the_video_extension_counts_for_itself() -> None:
    combine = {"frame_rate": 8, "loop_count": 0, "pingpong": False, "filename_prefix": "v", "format": "image/gif"}
    async with simulated() as (wire, _):
        names = []
        for nonce in range(2):
            prompt = graph("VHS_VideoCombine", images=["1", 0], save_output=True, _nonce=nonce, **combine)
            names.append((await made(wire, prompt))["gifs"][0]["filename"])
        assert names == ["v_00001.gif", "v_00002.gif"]
        prompt = graph("VHS_VideoCombine", images=["1", 0], save_output=False, **combine)
        assert (await made(wire, prompt))["gifs"][0]["type"] == "temp"


async def test_any_key_holds_any_files_and_any_values() -> None:
    async with simulated() as (wire, _):
        files = graph("SimulatedFiles", key="depth_maps", extension="exr", count=2, filename_prefix="d/x")
        reported = await made(wire, files)
        assert [item["filename"] for item in reported["depth_maps"]] == ["x_00001_.exr", "x_00002_.exr"]
        values = graph("SimulatedValues", key="scores", values='[1, "two", null, {"three": 3}]')
        assert await made(wire, values) == {"scores": [1, "two", None, {"three": 3}]}
        assert await made(wire, graph("PreviewAny", source=["1", 0])) == {"text": ["tensor of shape [2, 24, 32, 3]"]}


@pytest.mark.parametrize(("values", "kind"), [("[1", "json.decoder.JSONDecodeError"), ("{}", "TypeError")])
async def test_values_that_are_no_list_fail_the_node(values: str, kind: str) -> None:
    async with simulated() as (wire, _):
        _, entry = await wire.run(graph("SimulatedValues", key="scores", values=values))
        assert entry["status"]["messages"][-1][1]["exception_type"] == kind


async def test_the_jobs_route_shows_outputs_its_own_way_and_fails_on_a_number_as_a_name() -> None:
    async with simulated() as (wire, _):
        values = graph("SimulatedValues", key="result", values='[null, "3d/a.GLB", "plain", [1]]')
        prompt_id, entry = await wire.run(values)
        job = await wire.get(f"/api/jobs/{prompt_id}")
        file = {"filename": "3d/a.GLB", "type": "output", "subfolder": "", "mediaType": "3d"}
        assert entry["outputs"]["9"]["result"][0] is None
        assert job["outputs"]["9"]["result"] == [file, "plain", [1]]
        assert (job["outputs_count"], job["preview_output"]["nodeId"]) == (1, "9")
        prompt_id, _ = await wire.run(graph("SimulatedValues", key="images", values='[{"filename": 5}]'))
        assert (await wire.ask("GET", f"/api/jobs/{prompt_id}"))[0] == 500
        assert prompt_id in await wire.get(f"/history/{prompt_id}")
