"""genflow's guard on the wire: at the simulator always, at a real server where it is installed there."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from genflow.simulator import SimulatorOptions, running
from tests.comfyui.conftest import SERVERS
from tests.support.comfyui import Wire, three_nodes


@pytest.fixture(params=SERVERS)
async def guarded(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """A server with the guard at its door."""
    async with aiohttp.ClientSession() as session:
        if request.param == "real":
            wire = Wire(session, os.environ["COMFYUI_URL"].rstrip("/"))
            if (await wire.ask("GET", "/genflow/guard"))[0] != 200:
                pytest.skip("the guard is not installed at this server")
            yield wire
            return
        async with running(SimulatorOptions(seconds_per_step=0.01, guard=True)) as (server,):
            yield Wire(session, server.url)


def body(prompt_id: str, submit: str, token: int) -> dict[str, Any]:
    return {
        "prompt": three_nodes(),
        "prompt_id": prompt_id,
        "extra_data": {"genflow": {"submit": submit, "token": token}},
    }


async def test_it_says_that_it_is_there(guarded: Wire) -> None:
    for path in ("/genflow/guard", "/api/genflow/guard"):
        status, about = await guarded.ask("GET", path)
        assert (status, about["guard"], about["durable"]) == (200, 1, True)


@pytest.mark.parametrize("path", ["/prompt", "/api/prompt"])
async def test_a_late_post_is_refused_and_a_retry_is_not(guarded: Wire, path: str) -> None:
    job, first, late, retry = (str(uuid.uuid4()) for _ in range(4))
    assert (await guarded.ask("POST", "/prompt", json=body(job, first, 5)))[0] == 200
    for submit, token, reason in ((first, 5, "seen"), (late, 4, "stale")):
        status, told = await guarded.ask("POST", path, json=body(job, submit, token))
        assert (status, told["error"]["type"]) == (409, "genflow_guard")
        assert told["error"]["extra_info"] == {"reason": reason, "submit": submit}
    await guarded.polled(job)
    assert (await guarded.ask("POST", path, json=body(job, retry, 5)))[0] == 200
    await guarded.polled(job)


async def test_a_barred_submit_is_never_queued(guarded: Wire) -> None:
    job, submit = str(uuid.uuid4()), str(uuid.uuid4())
    bar = {"prompt_id": job, "submit": submit, "token": 7}
    assert await guarded.ask("POST", "/genflow/guard", json=bar) == (200, {"seen": False})
    status, _ = await guarded.ask("POST", "/prompt", json=body(job, submit, 7))
    assert status == 409
    assert await guarded.get(f"/history/{job}") == {}


async def test_the_prompts_of_others_pass_untouched(guarded: Wire) -> None:
    job = str(uuid.uuid4())
    for colour in (1, 2):  # F1.3: the same id twice is theirs to do
        status, _ = await guarded.post(three_nodes(colour=colour), job)
        assert status == 200
        await guarded.polled(job)
