"""Promise 6: two server errors are retried; out of memory by setting; a bad graph and a missing model fail at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import Service, small_workflow


async def test_two_server_errors_are_retried(genflow: Service) -> None:
    await genflow.simulate(script="500,500,ok")
    await genflow.api(base_delay_ms=100, jitter=False)
    await genflow.worker()
    job = await genflow.submit()
    await genflow.succeeded(job)
    story = await genflow.story(job)
    assert [(a["no"], a["outcome"], a["class"]) for a in story["attempts"]] == [
        (1, "failed", "transient"),
        (2, "failed", "transient"),
        (3, "succeeded", None),
    ]
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}, "a refused POST is none"


async def test_server_errors_past_the_last_attempt_are_a_dead_letter(genflow: Service) -> None:
    await genflow.simulate(script="500,500,ok")
    await genflow.api(base_delay_ms=50, attempts=2)
    await genflow.worker()
    job = await genflow.ended(await genflow.submit())
    assert (job["status"], job["error"]["code"]) == ("failed", "submit_unknown")


@pytest.mark.parametrize(("oom", "runs"), [("fail", 1), ("retry", 2)])
async def test_out_of_memory_gets_the_tries_that_the_setting_says(genflow: Service, oom: str, runs: int) -> None:
    await genflow.simulate(script="oom,oom,ok")
    await genflow.api(oom=oom, base_delay_ms=50)
    await genflow.worker()
    job = await genflow.submit()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "out_of_memory")
    assert (await genflow.book(job))["executions"] == runs


async def test_out_of_memory_once_is_not_the_end(genflow: Service) -> None:
    await genflow.simulate(script="oom,ok")
    await genflow.api(base_delay_ms=50)
    await genflow.worker()
    await genflow.succeeded(await genflow.submit())


async def test_a_bad_graph_fails_at_once_and_names_the_node(genflow: Service) -> None:
    await genflow.simulate(script="invalid,ok")
    await genflow.api()
    await genflow.worker()
    job = await genflow.submit()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "invalid_workflow")
    assert (ended["error"]["node_id"], ended["error"]["class_type"]) == ("3", "KSampler")
    assert (await genflow.book(job))["executions"] == 0
    assert (await genflow.story(job))["attempts_spent"] == 1


def with_missing_model(*, only: bool) -> dict[str, Any]:
    """A workflow whose second (or only) picture needs a checkpoint that no server has."""
    workflow = small_workflow() | {
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "nobody_has_this.safetensors"}},
        "5": {"class_type": "VAEDecode", "inputs": {"samples": ["6", 0], "vae": ["4", 2]}},
        "6": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "second"}},
    }
    if only:
        del workflow["3"]
    return workflow


async def test_a_missing_model_fails_at_once_and_names_the_input(genflow: Service) -> None:
    await genflow.simulate()
    await genflow.api()
    job = await genflow.submit(with_missing_model(only=True))  # while nothing is known of any server
    await genflow.worker()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "invalid_workflow")
    assert ended["error"]["node_id"] == "4"
    assert "ckpt_name" in ended["error"]["message"]
    assert (await genflow.book(job))["executions"] == 0
    assert (await genflow.story(job))["attempts_spent"] == 1


async def test_an_execution_error_tells_node_class_type_and_message(genflow: Service) -> None:
    await genflow.simulate(script="error")
    await genflow.api()
    await genflow.worker()
    job = await genflow.submit()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "node_execution_error")
    assert (ended["error"]["node_id"], ended["error"]["class_type"]) == ("2", "ImageToMask")
    assert "IndexError" in ended["error"]["message"]
    assert "index 3 is out of bounds" in ended["error"]["message"]
    assert await genflow.book(job) == {"posts": 1, "executions": 1, "interruptions": 0}


async def test_a_half_valid_graph_is_refused_and_stopped(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await sim.knobs(hold=1)
    await genflow.api()
    job = await genflow.submit(with_missing_model(only=False))  # while nothing is known of any server
    await genflow.worker()
    ended = await genflow.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "half_valid")
    assert ended["error"]["node_id"] == "4"
    assert "ckpt_name" in ended["error"]["message"]
    book = await genflow.book(job)
    assert book["posts"] == 1
    assert book["interruptions"] == book["executions"], "what it had begun was stopped"
    assert (await sim.get("/queue")) == {"queue_running": [], "queue_pending": []}
