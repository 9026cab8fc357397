"""Every kind of output is kept, each job's own, and files larger than memory pass through."""

from __future__ import annotations

import asyncio
import io
from typing import Any
from uuid import UUID

import aiohttp
import blake3
from PIL import Image, ImageDraw

from tests.support.service import Service, small_workflow

IMAGE = {"width": 64, "height": 48, "batch_size": 3, "color": 0x336699}
COMBINE = {"images": ["1", 0], "frame_rate": 8, "loop_count": 0, "pingpong": False, "filename_prefix": "v"}
NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "1": ("EmptyImage", IMAGE),
    "batch": ("SaveImage", {"images": ["1", 0], "filename_prefix": "b"}),
    "webp": ("SaveAnimatedWEBP", {"images": ["1", 0], "filename_prefix": "a", "fps": 6.0, "lossless": True,
                                  "quality": 80, "method": "default"}),
    "apng": ("SaveAnimatedPNG", {"images": ["1", 0], "filename_prefix": "p", "fps": 6.0, "compress_level": 4}),
    "3": ("CreateVideo", {"images": ["1", 0], "fps": 6.0}),
    "mp4": ("SaveVideo", {"video": ["3", 0], "filename_prefix": "m", "format": "mp4", "codec": "h264"}),
    "webm": ("SaveWEBM", {"images": ["1", 0], "filename_prefix": "w", "codec": "vp9", "fps": 6.0, "crf": 32.0}),
    "gif": ("VHS_VideoCombine", COMBINE | {"format": "image/gif", "save_output": True}),
    "gifs": ("VHS_VideoCombine", COMBINE | {"format": "video/h264-mp4", "save_output": True}),
    "4": ("EmptyAudio", {"duration": 1.0, "sample_rate": 44100, "channels": 2}),
    "flac": ("SaveAudio", {"audio": ["4", 0], "filename_prefix": "s"}),
    "opus": ("SaveAudioOpus", {"audio": ["4", 0], "filename_prefix": "s", "quality": "64k"}),
    "5": ("SimulatedMesh", {}),
    "glb": ("SaveGLB", {"mesh": ["5", 0], "filename_prefix": "g"}),
    "6": ("EmptyLatentImage", {"width": 64, "height": 64, "batch_size": 1}),
    "latent": ("SaveLatent", {"samples": ["6", 0], "filename_prefix": "l"}),
    "text": ("PreviewAny", {"source": "grüße"}),
    "none": ("PreviewAny", {"source": ""}),
    "files": ("SimulatedFiles", {"key": "depth_maps", "extension": "exr", "count": 2, "filename_prefix": "d"}),
    "any": ("SimulatedValues", {"key": "scores", "values": '[null, 0.5, "3d/x.glb", {"a": 1}]'}),
    "preview": ("PreviewImage", {"images": ["1", 0]}),
    "temp": ("VHS_VideoCombine", COMBINE | {"format": "image/gif", "save_output": False}),
}  # fmt: skip
KEPT = {
    "batch": [("b_00001_.png", "image"), ("b_00002_.png", "image"), ("b_00003_.png", "image")],
    "webp": [("a_00001_.webp", "image")],
    "apng": [("p_00001_.png", "image")],
    "mp4": [("m_00001_.mp4", "video")],
    "webm": [("w_00001_.webm", "video")],
    "gif": [("gif", "image")],  # which of the two has which number is left open
    "gifs": [("mp4", "video")],
    "flac": [("s_00001.flac", "audio")],
    "opus": [("s_00001.opus", "audio")],
    "glb": [("g_00001_.glb", "file")],
    "latent": [("l_00001_.latent", "latent")],
    "text": [("text-text-0.txt", "text")],
    "none": [("none-text-0.txt", "text")],
    "files": [("d_00001_.exr", "image"), ("d_00002_.exr", "image")],
    "any": [("any-scores-0.txt", "text"), ("any-scores-1.txt", "text"), ("any-scores-2.txt", "text")],
}
TEXTS = {"text": ["grüße"], "none": [""], "any": ["0.5", "3d/x.glb", '{"a": 1}']}


def workflow(*names: str) -> dict[str, Any]:
    return {name: {"class_type": NODES[name][0], "inputs": NODES[name][1]} for name in names or NODES}


async def content(genflow: Service, output: dict[str, Any]) -> tuple[int, str]:
    """Size and hash of the bytes behind an output, read piece by piece."""
    size, hasher = 0, blake3.blake3()
    async with genflow.http.get(output["url"]) as reply:
        assert reply.status == 200, await reply.text()
        async for chunk in reply.content.iter_chunked(1 << 20):
            size += len(chunk)
            hasher.update(chunk)
    return size, f"blake3:{hasher.hexdigest()}"


async def kept(genflow: Service, job: UUID) -> dict[str, list[tuple[str, str]]]:
    """Names and types by node, after a look at everything that an output must have."""
    found: dict[str, list[tuple[str, str]]] = {}
    texts: dict[str, list[str]] = {}
    for output in (await genflow.succeeded(job))["outputs"]:
        assert (output["size_bytes"], output["hash"]) == await content(genflow, output)
        assert (output["size_bytes"] > 0) == (output["node_id"] != "none")
        name = output["name"].rpartition(".")[2] if output["node_id"] in ("gif", "gifs") else output["name"]
        found.setdefault(output["node_id"], []).append((name, output["type"]))
        if output["type"] == "text":
            texts.setdefault(output["node_id"], []).append(output["text"])
        else:
            assert output["text"] is None
    assert texts == TEXTS
    return found


async def test_every_kind_is_an_output_whichever_way_the_server_tells_of_it(genflow: Service) -> None:
    """Once by `/api/jobs/ID`, once by the history of an old server; nothing is dropped, texts stand in the job."""
    [new] = await genflow.simulate()
    [old] = await genflow.simulate(old=True)
    await genflow.api()
    for server in (new, old):
        worker = await genflow.worker(servers=[server])
        job = await genflow.submit(workflow())
        assert await kept(genflow, job) == KEPT
        assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}
        # A number as a file name makes a server's `/api/jobs/ID` fail for good.
        number = {"class_type": "SimulatedValues", "inputs": {"key": "images", "values": '[{"filename": 7}]'}}
        [output] = (await genflow.succeeded(await genflow.submit({"1": number})))["outputs"]
        assert (output["type"], output["text"]) == ("text", '{"filename": 7}')
        await worker.stop()


async def test_previews_are_no_results_unless_asked_for_and_a_large_file_passes_in_flat_memory(
    genflow: Service,
) -> None:
    [sim] = await genflow.simulate()
    api = await genflow.api()
    worker = await genflow.worker()
    ended = await genflow.ended(await genflow.submit(workflow("1", "preview")))
    assert (ended["status"], ended["outputs"]) == ("failed", [])
    assert "temporary previews" in ended["error"]["message"]

    size = 250_000_000
    video = workflow("1", "3", "mp4")
    [output] = (await genflow.succeeded(await genflow.submit(video)))["outputs"]
    await content(genflow, output)
    before = [process.grown() for process in (worker, api)]
    await sim.knobs(video_bytes=size)
    video["1"] = {"class_type": "EmptyImage", "inputs": IMAGE | {"color": 5}}
    [output] = (await genflow.succeeded(await genflow.submit(video)))["outputs"]
    assert (output["size_bytes"], output["hash"]) == await content(genflow, output)
    assert output["size_bytes"] == size
    more = [process.grown() - least for process, least in zip((worker, api), before, strict=True)]
    assert max(more) < size / 4, more
    await worker.stop()

    await genflow.worker(previews=True)
    [output] = (await genflow.succeeded(await genflow.submit(workflow("1", "preview"))))["outputs"][:1]
    assert output["name"].startswith("ComfyUI_temp_")


def photo(lit: int) -> bytes:
    """A dark picture with one third of it lit."""
    image = Image.new("RGB", (240, 240), (30, 30, 30))
    ImageDraw.Draw(image).rectangle((80 * lit, 0, 80 * lit + 79, 240), fill=(240, 240, 240))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


async def test_servers_that_share_a_folder_never_mix_results_or_inputs_of_one_name(genflow: Service) -> None:
    """All prefixes are `ComfyUI`, all photos `in.png`, and each name is chosen long before its file is written."""
    servers = await genflow.simulate_together(3, shared_output=genflow.folder / "shared")
    for server in servers:
        await server.knobs(save_delay_ms=100)
    await genflow.api()
    await genflow.worker()

    async def portrait(lit: int) -> UUID:
        form = aiohttp.FormData({"prompt": "one", "seed": "7", "steps": "2", "width": "256", "height": "256"})
        form.add_field("photo", photo(lit), filename="in.png", content_type="image/png")
        status, body = await genflow.request("POST", "/genflow/v1/portraits", data=form)
        assert status == 201, body
        return UUID(body["id"])

    colors = [0x202020 * number + number for number in range(6)]
    plain = await asyncio.gather(*(genflow.submit(small_workflow(color=each, prefix="ComfyUI")) for each in colors))
    lit = await asyncio.gather(*(portrait(number) for number in range(3)))
    for color, job in zip(colors, plain, strict=True):
        picture = await image_of(genflow, job)
        inverted = 0xFFFFFF - color
        assert picture.getpixel((1, 1)) == (inverted >> 16, inverted >> 8 & 255, inverted & 255)
    for number, job in enumerate(lit):
        picture = (await image_of(genflow, job)).convert("L").crop((0, 100, 256, 140))
        places = [(85 * each + 20, 0, 85 * each + 65, 40) for each in range(3)]
        thirds = [picture.crop(place).resize((1, 1)).tobytes() for place in places]
        assert thirds.index(max(thirds)) == number, thirds


async def image_of(genflow: Service, job: UUID) -> Image.Image:
    [output] = (await genflow.succeeded(job))["outputs"]
    async with genflow.http.get(output["url"]) as reply:
        return Image.open(io.BytesIO(await reply.read()))
