"""What a job gave is an input of the next one on whichever server; names on servers fit what reads them."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.support.photos import encoded, picture
from tests.support.service import Service, small_workflow


def load(*assets: str) -> dict[str, Any]:
    """A workflow that loads each of these assets and saves what it saw."""
    graph: dict[str, Any] = {}
    for number, asset in enumerate(assets, 1):
        reference = {"__type": "core/ASSET", "info": {"id": asset}}
        graph[f"{number}0"] = {"class_type": "LoadImage", "inputs": {"image": reference}}
        graph[f"{number}1"] = {
            "class_type": "SaveImage",
            "inputs": {"images": [f"{number}0", 0], "filename_prefix": "o"},
        }
    return graph


async def upload(genflow: Service, data: bytes, file_path: str, content_type: str) -> str:
    form = aiohttp.FormData({"content_type": content_type, "file_path": file_path})
    form.add_field("file", data, filename="x")
    status, asset = await genflow.request("POST", "/api/v2/assets", data=form)
    assert status in (200, 201), asset
    made: str = asset["id"]
    return made


async def test_an_output_is_an_input_on_another_server_and_names_fit_their_files(genflow: Service) -> None:
    s0, s1 = await genflow.simulate_pair()
    await genflow.api()
    first = await genflow.worker("first", servers=[s0])
    [output] = (await genflow.succeeded(await genflow.submit(small_workflow())))["outputs"]
    await first.stop()
    await genflow.worker("second", servers=[s1])
    photo = encoded(picture(), "PNG")
    same = [await upload(genflow, photo, path, kind) for path, kind in [
        ("me.png", "image/png"), ("me.final", "image/png"), ("me.JPG", "application/octet-stream"),
    ]]  # fmt: skip
    job = await genflow.submit(load(output["id"], *same))
    assert len((await genflow.succeeded(job))["outputs"]) == 4
    assert {server for (server,) in await genflow.sql(
        "select s.name from genflow.submits as u join genflow.servers as s on s.id = u.server_id where job_id = %s", job
    )} == {"test/s1"}  # fmt: skip
    names = [name for (name,) in await genflow.sql(
        "select name from genflow.server_file_refs where job_id = %s order by name", job
    )]  # fmt: skip
    assert sorted(name.rpartition(".")[2] for name in names) == ["jpg", "png", "png"]
    assert {name.rpartition("/")[0] for name in names} == {f"genflow/{job}"}
