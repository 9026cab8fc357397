"""An input that somebody deleted on a server, before its prompt ran or its next attempt, is no fault of the job."""

from __future__ import annotations

import shutil
from typing import Any

import aiohttp

from tests.support.photos import encoded, picture
from tests.support.service import Service


async def photo_workflow(genflow: Service) -> dict[str, Any]:
    """A workflow that loads an uploaded photo and saves it."""
    form = aiohttp.FormData({"content_type": "image/png", "file_path": "me.png"})
    form.add_field("file", encoded(picture(), "PNG"), filename="me.png")
    status, asset = await genflow.request("POST", "/api/v2/assets", data=form)
    assert status == 201, asset
    reference = {"__type": "core/ASSET", "info": {"id": asset["id"]}}
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": reference}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "o"}},
    }


def clean_inputs(genflow: Service) -> None:
    """What an operator's clean-up does: everything in the server's input folder goes."""
    [folder] = (genflow.folder / "sim0").rglob("input")
    for each in folder.iterdir():
        shutil.rmtree(each)


async def test_gone_before_the_prompt_ran(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(jitter=False, base_delay_ms=100)
    await genflow.worker()
    await sim.knobs(hold=1)
    job = await genflow.submit(await photo_workflow(genflow))
    await sim.wait("held", job)
    clean_inputs(genflow)
    await sim.knobs(release=True)
    assert len((await genflow.succeeded(job))["outputs"]) == 1
    first, second = (await genflow.story(job))["attempts"]
    assert (first["code"], first["node_id"], second["outcome"]) == ("input_gone", "1", "succeeded")
    assert await genflow.book(job) == {"posts": 2, "executions": 2, "interruptions": 0}


async def test_gone_before_the_next_attempt(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api(jitter=False, base_delay_ms=100)
    await genflow.worker()
    await sim.knobs(hold=2)
    job = await genflow.submit(await photo_workflow(genflow))
    await sim.wait("held", job)
    clean_inputs(genflow)
    await sim.knobs(hold=None)
    await sim.post("/interrupt", {})
    assert len((await genflow.succeeded(job))["outputs"]) == 1
    codes = [attempt["code"] for attempt in (await genflow.story(job))["attempts"]]
    assert codes == ["interrupted", "input_gone", None]
    assert await genflow.book(job) == {"posts": 2, "executions": 2, "interruptions": 1}
