"""Whole recorded sequences, sent again: status codes, bodies and the order of events are those that were recorded."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.comfyui import Event, Wire, recorded

LEFT_OUT = frozenset(
    {
        "timestamp", "create_time", "execution_start_time", "execution_end_time", "pagination",
        "traceback", "current_inputs", "current_outputs",
    }
)  # fmt: skip
"""What differs from run to run, or between machines."""


class Replay:
    """One recorded sequence with fresh ids, colours and folders, so that it can be sent to any server at any time."""

    def __init__(self, wire: Wire, steps: list[dict[str, Any]]) -> None:
        self.wire = wire
        self.texts: dict[str, str] = {}
        self.mark = uuid.uuid4().hex
        self.shift = uuid.uuid4().int % 0x7FFFFF
        self.base: float | None = None
        for send in (step["send"] for step in steps):
            for key in ("prompt_id", "client_id") if len(send) == 3 else ():
                if isinstance(send[2].get(key), str):
                    self.texts.setdefault(send[2][key], str(uuid.uuid4()))

    def ours(self, value: Any) -> Any:
        """A recorded value as this sequence has it."""
        if isinstance(value, dict):
            return {
                self.ours(key): (inner + self.shift) % 0xFFFFFF if key == "color" else self.ours(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.ours(inner) for inner in value]
        if isinstance(value, str):
            for old, new in self.texts.items():
                value = value.replace(old, new)
            folder, _, rest = value.partition("/")
            if folder in ("rec", "k"):
                return f"{self.mark}-{folder}/{rest}" if rest else f"{self.mark}-{folder}"
        return value

    def comparable(self, value: Any) -> Any:
        """A received value without what differs from run to run, numbers counted from the first prompt."""
        if isinstance(value, list):
            return [self.comparable(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        kept = {}
        for key, inner in value.items():
            if key in LEFT_OUT:
                continue
            if key in ("number", "priority"):
                self.base = inner if self.base is None else self.base
                inner -= self.base
            elif key == "prompt" and isinstance(inner, list):
                inner = [inner[0] - (self.base or 0), *inner[1:]]
            kept[key] = self.comparable(inner)
        return kept

    async def step(self, step: dict[str, Any], heard: list[Event]) -> None:
        """Send one request and compare its answer."""
        method, path, *body = step["send"]
        sent: dict[str, Any] = {"json": self.ours(body[0])} if body else {}
        status, answer = await self.wire.ask(method, self.ours(path), **sent)
        answer = answer.decode() if isinstance(answer, bytes) else answer
        if isinstance(step["body"], dict) and "prompt_id" in step["body"] and isinstance(answer, dict):
            self.texts.setdefault(step["body"]["prompt_id"], answer["prompt_id"])
        assert (status, self.comparable(answer)) == (step["status"], self.ours(step["body"])), (step["send"], heard)

    def told(self, event: Event) -> Event:
        """A heard event, cut as the recording is."""
        if event["type"] == "progress_state":
            states = {node: told["state"] for node, told in event["data"]["nodes"].items()}
            return {"type": event["type"], "nodes": states}
        return {"type": event["type"], "data": self.comparable(event["data"])}


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
