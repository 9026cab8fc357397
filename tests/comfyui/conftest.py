"""The wire tests run against the simulator, and against a real server where COMFYUI_URL names one (core nodes only).

Each names the fact of docs/design/comfyui.md that it holds: F1.3 is section 1, point 3. What needs a knob, a restart or
an extension's node stands in tests/unit/test_simulator_*.py.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from genflow.simulator import SimulatorOptions, running
from tests.support.comfyui import Wire

SERVERS = ["simulator", *(["real"] if os.environ.get("COMFYUI_URL") else [])]


@pytest.fixture(params=SERVERS)
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """A server on the wire, with nothing in its queue."""
    async with aiohttp.ClientSession() as session:
        if request.param == "real":
            yield Wire(session, os.environ["COMFYUI_URL"].rstrip("/"))
            return
        async with running(SimulatorOptions(seconds_per_megapixel=0.2, seconds_per_step=0.01)) as (server,):
            yield Wire(session, server.url)
