"""What no server would take is refused at once, by what the servers last said, also while all of them are down."""

from __future__ import annotations

import time
from typing import Any

from tests.promises.test_failures_end_as_their_class_says import with_missing_model
from tests.support.service import Service, small_workflow, until

JOBS = "/api/v2/jobs"
NEW_MODEL = "nobody_has_this.safetensors"


async def submit(genflow: Service, workflow: dict[str, Any]) -> tuple[int, Any]:
    return await genflow.request("POST", JOBS, json={"workflow": workflow})


async def known(genflow: Service) -> bool:
    return await genflow.sql("select 1 from genflow.servers where learned_at is not null") != []


async def test_what_the_servers_have_decides_and_is_looked_at_anew_before_a_refusal(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api()
    await genflow.worker()
    await until(lambda: known(genflow), "the server said what it has")
    await genflow.sql("update genflow.servers set learned_at = learned_at - interval '1 minute'")
    await sim.knobs(models={"checkpoints": [NEW_MODEL]})
    status, made = await submit(genflow, with_missing_model(only=True))
    assert status == 201, "the model was added a moment ago"
    assert (await genflow.ended(made["id"]))["status"] == "succeeded"

    await sim.knobs(models={"checkpoints": []})
    await genflow.sql("update genflow.servers set learned_at = learned_at - interval '1 minute'")
    bad = with_missing_model(only=False)
    bad["4"]["inputs"]["ckpt_name"] = "never_seen.safetensors"
    del bad["1"]["inputs"]["width"]
    began = time.monotonic()
    status, refused = await submit(genflow, bad)
    assert (status, refused["error"]["code"]) == (422, "invalid_workflow")
    named = {
        node: [(each["field"], each["reason"], each["class_type"]) for each in errors]
        for node, errors in refused["error"]["details"]["node_errors"].items()
    }
    assert named == {
        "1": [("width", "required_input_missing", "EmptyImage")],
        "4": [("ckpt_name", "value_not_in_list", "CheckpointLoaderSimple")],
    }
    assert time.monotonic() - began < 5, "the look at the servers is bounded"

    await sim.process.kill()
    assert (await submit(genflow, bad))[0] == 422, "every server is down, and what they had is known"
    assert (await submit(genflow, {"1": {"class_type": "NoSuchNode", "inputs": {}}}))[0] == 422
    assert (await submit(genflow, small_workflow()))[0] == 201


async def test_what_two_servers_have_between_them_is_refused_or_waits(genflow: Service) -> None:
    one, two = await genflow.simulate(2)
    await one.knobs(lacks=["ImageInvert"])
    await two.knobs(lacks=["ImageBlur"])
    both = small_workflow() | {
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["5", 0]}},
        "5": {"class_type": "ImageBlur", "inputs": {"image": ["1", 0], "blur_radius": 1, "sigma": 1.0}},
    }
    strict = await genflow.api()
    await genflow.api(validation="lenient")
    await genflow.worker()
    await until(lambda: known(genflow), "the servers said what they have")
    lenient_url, genflow.url = genflow.url, strict.ready["ready"]
    status, body = await submit(genflow, both)
    assert (status, body["error"]["details"]["reason"]) == (422, "no_single_server")
    assert "Image" in body["error"]["message"]
    genflow.url = lenient_url
    job = await genflow.submit(both)
    story = await genflow.story(job)
    assert story["status"] == "queued"
    assert story["waits_because"].startswith("no known server can run it; the closest lacks node Image")
    await two.knobs(lacks=[])
    await genflow.sql("select pg_notify('genflow', 'learn')")
    await genflow.succeeded(job)
