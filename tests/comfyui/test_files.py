"""Uploads and views (docs/design/comfyui.md, section 6)."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import pytest
from PIL import Image

from tests.support.comfyui import Wire, png, recorded, three_nodes


async def test_an_upload_keeps_its_name_unless_other_bytes_have_it(wire: Wire) -> None:
    """F6.4."""
    mark = uuid.uuid4().hex[:8]
    name, renamed = f"{mark}.png", f"{mark} (1).png"
    one, two = png(), png(colour=(1, 2, 3))
    for data, expected in ((one, name), (one, name), (two, renamed), (two, renamed)):
        assert await wire.upload(data, name) == (200, {"name": expected, "subfolder": "", "type": "input"})
    assert (await wire.upload(two, name, overwrite="true"))[1]["name"] == name
    assert (await wire.upload(one, name, overwrite="1"))[1]["name"] == name
    assert (await wire.upload(two, name, overwrite="True"))[1]["name"] == renamed


async def test_an_upload_goes_where_it_is_told(wire: Wire) -> None:
    """F6.4 and F6.5."""
    name = f"{uuid.uuid4().hex[:8]}.png"
    for kind in ("input", "output", "temp"):
        told = {"name": name, "subfolder": "jobs/abc", "type": kind}
        assert await wire.upload(png(), name, subfolder="jobs/abc", type=kind) == (200, told)
        assert (await wire.ask("GET", "/view", params={"filename": name, "subfolder": "jobs/abc", "type": kind}))[
            0
        ] == 200
    assert (await wire.upload(png(), name, type="bogus"))[0] == 500
    assert (await wire.upload(png(), name, subfolder="../../x"))[0] == 400
    assert (await wire.upload(png(), name, subfolder="/etc"))[0] == 400
    assert (await wire.upload(png(), "n" * 300 + ".png"))[0] == 500
    assert (await wire.ask("POST", "/upload/image", data=b"x"))[0] == 400


@pytest.mark.parametrize("row", recorded("upload_names"), ids=lambda row: row["name"])
async def test_raw_names_are_taken_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F6.5."""
    headers = {"Content-Type": "multipart/form-data; boundary=BOUND"}
    status, body = await wire.ask("POST", "/upload/image", data=row["raw"].encode("latin-1"), headers=headers)
    assert (status, body if status == 200 else None) == (row["status"], row["body"])


async def test_an_uploaded_photo_is_loaded_and_what_is_none_fails_in_its_node(wire: Wire) -> None:
    """F6.5 and F6.6."""
    mark = uuid.uuid4().hex[:8]
    await wire.upload(png(24, 18), f"{mark}.png", subfolder="photos")
    await wire.upload(b"hello", f"{mark}.txt")
    graph: dict[str, Any] = {
        "1": {"class_type": "LoadImage", "inputs": {"image": f"photos/{mark}.png"}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    _, entry = await wire.run(graph)
    shown = entry["outputs"]["2"]["images"][0]
    assert shown["type"] == "temp"
    status, body = await wire.ask("GET", "/view", params=shown)
    assert (status, Image.open(io.BytesIO(body)).size) == (200, (24, 18))
    graph["1"]["inputs"]["image"] = f"{mark}.txt"
    _, entry = await wire.run(graph)
    event, data = entry["status"]["messages"][-1]
    assert (event, data["node_id"], data["node_type"]) == ("execution_error", "1", "LoadImage")
    assert data["exception_message"].startswith("[Errno 1094995529] Invalid data found when processing input")


async def test_other_bytes_under_one_name_are_seen_by_the_cache(wire: Wire) -> None:
    """F5.4."""
    name = f"{uuid.uuid4().hex[:8]}.png"
    graph: dict[str, Any] = {
        "1": {"class_type": "LoadImage", "inputs": {"image": name}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    await wire.upload(png(), name)
    await wire.run(graph)
    await wire.upload(png(colour=(9, 9, 9)), name, overwrite="1")
    _, entry = await wire.run(graph)
    assert entry["status"]["messages"][1][1]["nodes"] == []


async def test_view_answers_as_recorded(wire: Wire) -> None:
    """F6.7."""
    mark = uuid.uuid4().hex[:8]
    await wire.run(three_nodes(f"rec/{mark}"))
    for row in recorded("view"):
        path = row["path"].replace("view_00001_", f"{mark}_00001_")
        async with wire.session.get(wire.url + path) as reply:
            assert reply.status == row["status"], path
            shown = {key: reply.headers.get(key) for key in row["headers"]}
        if row["status"] == 200:
            expected = json.loads(json.dumps(row["headers"]).replace("view_00001_", f"{mark}_00001_"))
            assert shown == expected, path


async def test_a_file_can_be_read_in_parts(wire: Wire) -> None:
    """F6.7."""
    mark = uuid.uuid4().hex[:8]
    await wire.run(three_nodes(f"rec/{mark}"))
    params = {"filename": f"{mark}_00001_.png", "subfolder": "rec"}
    whole = await wire.get("/view", params=params)
    status, part = await wire.ask("GET", "/view", params=params, headers={"Range": "bytes=4-11"})
    assert (status, part) == (206, whole[4:12])
    async with wire.session.get(wire.url + "/view", params=params) as reply:
        tag = reply.headers["ETag"]
    assert (await wire.ask("GET", "/view", params=params, headers={"If-None-Match": tag}))[0] == 304
    async with wire.session.head(wire.url + "/view", params=params) as reply:
        assert (reply.status, reply.headers["Content-Length"]) == (200, str(len(whole)))


async def test_a_picture_carries_its_graph_and_the_counter_goes_on(wire: Wire) -> None:
    """F6.2 and F6.3."""
    mark = uuid.uuid4().hex[:8]
    graph = three_nodes(f"rec/{mark}")
    graph["1"]["inputs"]["batch_size"] = 2
    extra = {"extra_pnginfo": {"workflow": {"id": "wf"}}}
    _, entry = await wire.run(graph, extra_data=extra)
    assert [image["filename"] for image in entry["outputs"]["3"]["images"]] == [
        f"{mark}_00001_.png", f"{mark}_00002_.png",
    ]  # fmt: skip
    picture = Image.open(io.BytesIO(await wire.get("/view", params=entry["outputs"]["3"]["images"][1])))
    assert json.loads(picture.info["prompt"]) == graph
    assert json.loads(picture.info["workflow"]) == {"id": "wf"}
    graph["1"]["inputs"]["color"] = 1
    _, entry = await wire.run(graph)
    assert entry["outputs"]["3"]["images"][0]["filename"] == f"{mark}_00003_.png"


async def test_an_empty_upload_takes_a_finished_picture_off_the_server(wire: Wire) -> None:
    """F6.8."""
    _, entry = await wire.run(three_nodes(f"rec/{uuid.uuid4().hex[:8]}"))
    image = entry["outputs"]["3"]["images"][0]
    status, _ = await wire.upload(b"", image["filename"], subfolder="rec", type="output", overwrite="1")
    assert status == 200
    assert await wire.ask("GET", "/view", params=image) == (200, b"")
    # The name stays taken: the next picture takes the next number.
    prefix = f"rec/{image['filename'].partition('_')[0]}"
    _, entry = await wire.run(three_nodes(prefix))
    assert entry["outputs"]["3"]["images"][0]["filename"] == image["filename"].replace("00001", "00002")
