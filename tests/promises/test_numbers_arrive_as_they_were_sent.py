"""Promise 12: the seed 18446744073709551615 and a float like 6.5 arrive at the server as they were sent."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.support.photos import photo
from tests.support.service import Service, small_workflow

SEED = 18_446_744_073_709_551_615


async def posted_graph(genflow: Service, job_id: object) -> dict[str, Any]:
    """The graph as the server's history holds it."""
    entry = await genflow.simulators[0].get(f"/history/{job_id}")
    graph: dict[str, Any] = entry[str(job_id)]["prompt"][2]
    return graph


async def test_in_a_workflow_of_any_kind(genflow: Service) -> None:
    await genflow.simulate()
    await genflow.api()
    await genflow.worker()
    workflow = small_workflow()
    workflow["3"]["inputs"] |= {"seed": SEED, "ratio": 6.5, "tiny": 1e-7, "text": "18446744073709551616"}
    job = await genflow.submit(workflow)
    await genflow.succeeded(job)
    inputs = (await posted_graph(genflow, job))["3"]["inputs"]
    assert inputs["seed"] == SEED
    assert isinstance(inputs["seed"], int)
    assert (inputs["ratio"], inputs["tiny"], inputs["text"]) == (6.5, 1e-7, "18446744073709551616")


async def test_in_a_portrait(genflow: Service) -> None:
    await genflow.simulate(seconds_per_step=0)
    await genflow.api()
    await genflow.worker()
    form = aiohttp.FormData()
    form.add_field("photo", photo(), filename="me.jpg", content_type="image/jpeg")
    form.add_field("prompt", "studio portrait")
    form.add_field("seed", str(SEED))
    form.add_field("cfg", "6.5")
    status, body = await genflow.request("POST", "/genflow/v1/portraits", data=form)
    assert status == 201, body
    await genflow.succeeded(body["id"])
    graph = await posted_graph(genflow, body["id"])
    [sampler] = [node for node in graph.values() if node["class_type"] == "KSampler"]
    assert sampler["inputs"]["seed"] == SEED
    assert sampler["inputs"]["cfg"] == 6.5
    assert (await genflow.story(body["id"]))["seed"] in (SEED, str(SEED))
