"""A portrait is really drawn: from the photo, the text and the seed, and it says SIMULATED."""

from __future__ import annotations

import io
import uuid
from typing import Any

from PIL import Image, ImageStat

from genflow.simulator import pictures
from tests.support.comfyui import Wire, recorded, simulated, three_nodes
from tests.support.portraits import face_photo, portrait_graph


async def pictures_of(wire: Wire, graph: dict[str, Any]) -> list[Image.Image]:
    _, entry = await wire.run(graph)
    assert entry["status"]["completed"] is True, entry["status"]["messages"][-1]
    images = entry["outputs"]["11"]["images"]
    return [Image.open(io.BytesIO(await wire.get("/view", params=image))).convert("RGB") for image in images]


def brightness(image: Image.Image, box: tuple[int, int, int, int]) -> float:
    return float(ImageStat.Stat(image.convert("L").crop(box)).mean[0])


async def test_the_portrait_shows_the_photo_upright_and_says_simulated() -> None:
    async with simulated() as (wire, _):
        await wire.upload(face_photo(), "plain.jpg")
        await wire.upload(face_photo(turned=True), "turned.jpg")
        for name in ("plain.jpg", "turned.jpg"):
            (picture,) = await pictures_of(wire, portrait_graph(name))
            assert picture.size == (256, 320)
            # The photo's dark left and bright right half.
            assert brightness(picture, (150, 80, 240, 200)) > brightness(picture, (16, 80, 106, 200)) + 60
            # A dark band with white letters across its middle.
            band = picture.convert("L").crop((4, 4, 252, 26))
            assert ImageStat.Stat(band).median[0] < 60
            assert sum(band.histogram()[230:]) > 300
            letters = band.point(lambda level: 255 if level > 200 else 0).getbbox()
            assert letters is not None
            assert letters[0] < 80
            assert letters[2] > 170


async def test_text_seed_and_photo_change_the_picture_and_the_same_request_does_not() -> None:
    async with simulated() as (wire, _), simulated() as (twin, _):
        for each in (wire, twin):
            await each.upload(face_photo(), "face.jpg")
        (first,) = await pictures_of(wire, portrait_graph("face.jpg", text="in red", seed=7))
        (same,) = await pictures_of(twin, portrait_graph("face.jpg", text="in red", seed=7))
        (other_seed,) = await pictures_of(wire, portrait_graph("face.jpg", text="in red", seed=8))
        (other_text,) = await pictures_of(wire, portrait_graph("face.jpg", text="in blue", seed=7))
        assert first.tobytes() == same.tobytes()
        drawn = (0, 40, 256, 240)  # below the band, above the words
        assert first.crop(drawn).tobytes() != other_seed.crop(drawn).tobytes()
        red, _, blue = ImageStat.Stat(first).mean
        red_in_blue, _, blue_in_blue = ImageStat.Stat(other_text).mean
        assert red > blue
        assert blue_in_blue > red_in_blue


async def test_a_batch_gives_several_different_pictures() -> None:
    async with simulated() as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        drawn = await pictures_of(wire, portrait_graph("face.jpg", count=3))
        assert len({picture.crop((0, 40, 256, 240)).tobytes() for picture in drawn}) == 3


async def test_a_missing_model_file_is_refused_before_queueing_by_name() -> None:
    async with simulated() as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        for node, name in (
            ("1", "ckpt_name"),
            ("4", "lora_name"),
            ("12", "ipadapter_file"),
            ("13", "model_name"),
            ("14", "clip_name"),
        ):
            graph = portrait_graph("face.jpg")
            graph[node]["inputs"][name] = "nope.safetensors"
            status, body = await wire.post(graph)
            assert (status, list(body["node_errors"])) == (400, [node])
            reason = body["node_errors"][node]["errors"][0]
            assert reason["type"] == "value_not_in_list"
            assert reason["details"].startswith(f"{name}: 'nope.safetensors' not in [")
            assert body["node_errors"][node]["dependent_outputs"] == ["11"]


async def test_faceid_graphs_are_refused_in_the_recorded_words() -> None:
    async with simulated() as (wire, server):
        await wire.upload(face_photo(), "photo.jpg", subfolder="faceid")
        server.catalog.models["checkpoints"] = ["random_sd15.safetensors"]
        for row in recorded("validation"):
            classes = {node.get("class_type") for node in row["prompt"].values()}
            if "KSampler" in classes:
                status, body = await wire.post(row["prompt"])
                assert (status, body) == (400, row["body"]), row["case"]


async def test_the_unified_loader_misses_its_files_only_when_it_runs() -> None:
    async with simulated() as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        graph = portrait_graph("face.jpg")
        loader = {"model": ["1", 0], "preset": "FACEID PLUS V2", "lora_strength": 0.6, "provider": "CPU"}
        graph["4"] = {"class_type": "IPAdapterUnifiedLoaderFaceID", "inputs": loader}
        graph["5"]["inputs"] |= {"ipadapter": ["4", 1]}
        for unused in ("insightface", "clip_vision"):
            del graph["5"]["inputs"][unused]
        assert len(await pictures_of(wire, graph)) == 1
        await wire.knobs(models={"clip_vision": []})
        graph["9"]["inputs"]["seed"] += 1
        graph["4"]["inputs"]["lora_strength"] = 0.5
        _, entry = await wire.run(graph)
        data = entry["status"]["messages"][-1][1]
        assert (data["node_type"], data["exception_type"]) == ("IPAdapterUnifiedLoaderFaceID", "Exception")
        assert data["exception_message"] == "ClipVision model not found.\n"


async def test_the_other_picture_nodes_compute() -> None:
    async with simulated() as (wire, _):
        graph: dict[str, Any] = three_nodes(colour=0xFF8000)
        _, entry = await wire.run(graph)
        saved = Image.open(io.BytesIO(await wire.get("/view", params=entry["outputs"]["3"]["images"][0])))
        assert saved.getpixel((5, 5)) == (0, 0x7F, 0xFF)
        scale = {"image": ["1", 0], "upscale_method": "area", "width": 32, "height": 0, "crop": "disabled"}
        graph["2"] = {"class_type": "ImageScale", "inputs": scale}
        _, entry = await wire.run(graph)
        saved = Image.open(io.BytesIO(await wire.get("/view", params=entry["outputs"]["3"]["images"][0])))
        assert saved.size == (32, 24)
        graph["2"] = {"class_type": "ImageToMask", "inputs": {"image": ["1", 0], "channel": "green"}}
        graph["4"] = {"class_type": "MaskToImage", "inputs": {"mask": ["2", 0]}}
        graph["3"]["inputs"]["images"] = ["4", 0]
        _, entry = await wire.run(graph)
        saved = Image.open(io.BytesIO(await wire.get("/view", params=entry["outputs"]["3"]["images"][0])))
        assert saved.getpixel((5, 5)) == (0x80, 0x80, 0x80)


async def test_a_transparent_upload_gives_a_mask() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (10, 10), (255, 0, 0, 55)).save(buffer, "PNG")
    async with simulated() as (wire, _):
        await wire.upload(buffer.getvalue(), "glass.png")
        graph: dict[str, Any] = {
            "1": {"class_type": "LoadImage", "inputs": {"image": "glass.png"}},
            "2": {"class_type": "MaskToImage", "inputs": {"mask": ["1", 1]}},
            "3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}},
        }
        _, entry = await wire.run(graph)
        saved = Image.open(io.BytesIO(await wire.get("/view", params=entry["outputs"]["3"]["images"][0])))
        assert saved.getpixel((1, 1)) == (200, 200, 200)


async def test_a_picture_for_the_socket_leaves_no_outputs() -> None:
    async with simulated() as (wire, _), wire.socket("mine") as socket:
        graph = three_nodes()
        graph["3"] = {"class_type": "SaveImageWebsocket", "inputs": {"images": ["2", 0]}}
        prompt_id = await wire.queue(graph, client_id="mine")
        heard = await socket.ended(prompt_id)
        (frame,) = [event["data"] for event in heard if event["type"] == "binary"]
        assert frame[:8] == (1).to_bytes(4) + (2).to_bytes(4)
        assert Image.open(io.BytesIO(frame[8:])).size == (64, 48)
        assert (await wire.entry(prompt_id))["outputs"] == {}


def test_text_chunks_survive_any_text() -> None:
    png = pictures.empty(4, 4, 0).png()
    told = {"prompt": {"text": f"ünïcode \N{SNOWMAN} {uuid.uuid4()}"}}
    picture = Image.open(io.BytesIO(pictures.with_text(png, told)))
    picture.load()
    assert "\\u2603" in picture.info["prompt"]
