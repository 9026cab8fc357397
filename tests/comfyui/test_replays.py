"""Whole recorded sequences, sent again: status codes, bodies and the order of events are those that were recorded."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.comfyui import Event, Wire, recorded
from tests.support.replays import Replay


def idle(event: Event) -> bool:
    """Whether this is the message that nothing is pending or running."""
    return bool(event["type"] == "status" and event["data"]["status"]["exec_info"]["queue_remaining"] == 0)


@pytest.mark.parametrize("case", recorded("replays"), ids=lambda case: case["case"])
async def test_a_recorded_sequence_is_answered_as_it_was(wire: Wire, case: dict[str, Any]) -> None:
    steps = case["steps"]
    replay = Replay(wire, steps)
    listener = next((send[2]["client_id"] for send in (s["send"] for s in steps) if _listens(send)), str(uuid.uuid4()))
    try:
        async with wire.socket(replay.ours(listener)) as socket:
            for step in steps:
                await replay.step(step, socket.heard)
                if step["send"][:2] == ["POST", "/prompt"] and step["status"] == 200:
                    expected = replay.ours(step.get("events", []))
                    heard = await socket.until(idle)
                    if expected and expected[-1]["type"] == "executing":
                        heard += await socket.until(lambda event: event["type"] == "executing")
                    assert [replay.told(event) for event in heard if event["type"] != "status"] == expected
    finally:
        # A null would spoil the list for others.
        await wire.ask("POST", "/history", json={"delete": list(replay.texts.values())})


def _listens(send: list[Any]) -> bool:
    return len(send) == 3 and isinstance(send[2].get("client_id"), str)
