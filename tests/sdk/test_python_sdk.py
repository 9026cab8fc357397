"""The official Python SDK, unchanged, drives a fleet: only `COMFY_BASE_URL` says where."""

from __future__ import annotations

import asyncio
import io
from typing import Any
from uuid import uuid4

import pytest
from comfy_sdk import AsyncComfy, events
from comfy_sdk.exceptions import IdempotencyKeyReuse, InvalidWorkflow, JobFailed, MissingAsset, NotFound
from comfy_sdk.outputs import AsyncOutput
from PIL import Image

from tests.support.service import TERMINAL, Service, small_workflow

INVERTED = {
    "1": {"class_type": "LoadImage", "inputs": {"image": None}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "inverted"}},
}
TIGHTLY = 60


@pytest.fixture(autouse=True)
def _this_fleet(genflow: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMFY_BASE_URL", genflow.url)
    monkeypatch.delenv("COMFY_API_KEY", raising=False)


def picture(color: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (96, 64), color).save(file, "PNG")
    return file.getvalue()


def corner(data: bytes) -> Any:
    """The colour of a picture's first pixel."""
    return Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))


async def test_a_photo_goes_in_its_picture_comes_out_and_goes_in_again() -> None:
    async with AsyncComfy() as comfy:
        workflow = comfy.workflows.from_json(INVERTED)
        photo = comfy.assets.from_bytes(picture("red"), filename="red.png", content_type="image/png")
        workflow.set_input("1", "image", photo)
        job = await comfy.run(workflow)
        [made] = job.get_outputs("3")
        inverted = await made.to_bytes()
        assert corner(inverted) == (0, 255, 255)
        assert await made.to_bytes(range=(0, 7)) == inverted[:8]
        assert (made.size_bytes, made.job_id) == (len(inverted), job.id)

        twin = comfy.assets.from_bytes(picture("red"), filename="twin.png", content_type="image/png")
        await twin.commit()
        assert twin.created_new is False, "bytes that are there are not sent again"
        assert twin.hash == photo.hash

        again = comfy.workflows.from_json(INVERTED)
        again.set_input("1", "image", {"__type": "core/ASSET", "info": {"id": made.id}})
        job = await comfy.run(again)
        [back] = job.get_outputs("3")
        assert corner(await back.to_bytes()) == (255, 0, 0)
        assert (await comfy.jobs.get(job.id)).status == "succeeded"
        told = await job.get_workflow()
        assert (told.format, set(told.graph)) == ("api", set(INVERTED))


async def test_short_jobs_that_are_polled_tightly_never_show_a_false_end() -> None:
    async def one(comfy: AsyncComfy, number: int) -> list[str]:
        job = await comfy.submit(comfy.workflows.from_json(small_workflow(color=number)))
        seen = [job.status]
        while job.status not in TERMINAL:
            await job.refresh()
            seen.append(job.status)
        return seen

    async with AsyncComfy() as comfy:
        seen = await asyncio.gather(*(one(comfy, number) for number in range(TIGHTLY)))
    order = ["queued", "running", "succeeded"]
    assert [states[-1] for states in seen] == ["succeeded"] * TIGHTLY
    assert [states for states in seen if states != sorted(states, key=order.index)] == [], "a state that went back"


async def test_events_labels_and_cancel(genflow: Service) -> None:
    async with AsyncComfy() as comfy:
        job = await comfy.submit(comfy.workflows.from_json(small_workflow()), metadata={"user": "anna"})
        other = await comfy.submit(comfy.workflows.from_json(small_workflow(color=1)), metadata={"user": "ben"})
        heard = [event async for event in job.events()]
        assert isinstance(heard[0], events.StatusChange)
        assert heard[-1] == events.StatusChange("succeeded")
        [output] = [event.output for event in heard if isinstance(event, events.OutputReady)]
        assert isinstance(output, AsyncOutput)
        assert await output.to_bytes()
        assert [each.id async for each in comfy.list_jobs(metadata={"user": "anna"})] == [job.id]
        assert [each.id async for each in comfy.list_jobs(limit=1)][:2] == [other.id, job.id]

        for server in genflow.simulators:
            await server.knobs(hold=2)
        stopped = await comfy.submit(comfy.workflows.from_json(small_workflow(color=2)))
        await asyncio.wait(
            [asyncio.create_task(server.wait("held")) for server in genflow.simulators],
            return_when=asyncio.FIRST_COMPLETED,
        )
        await stopped.cancel()
        for server in genflow.simulators:
            await server.knobs(hold=None, release=True)
        await stopped.wait(timeout=30)
        assert stopped.status == "canceled"
        with pytest.raises(JobFailed):
            await stopped.result()


async def test_refusals_are_the_sdks_own_exceptions() -> None:
    async with AsyncComfy() as comfy:
        with pytest.raises(NotFound):
            await comfy.jobs.get(str(uuid4()))
        with pytest.raises(NotFound):
            await comfy.assets.get(str(uuid4()))
        with pytest.raises(InvalidWorkflow) as refused:
            await comfy.submit(comfy.workflows.from_json({"1": {"class_type": "NoSuchNode", "inputs": {}}}))
        assert set((refused.value.details or {})["node_errors"]) == {"1"}
        lost = comfy.workflows.from_json(INVERTED)
        lost.set_input("1", "image", {"__type": "core/ASSET", "info": {"id": str(uuid4())}})
        with pytest.raises(MissingAsset):
            await comfy.submit(lost)
        key = uuid4().hex
        first = await comfy.submit(comfy.workflows.from_json(small_workflow()), idempotency_key=key)
        with pytest.raises(IdempotencyKeyReuse) as reused:
            await comfy.submit(comfy.workflows.from_json(small_workflow()), idempotency_key=key)
        assert (reused.value.details or {})["job_id"] == first.id
