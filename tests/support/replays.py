"""Recorded sequences, sent again with ids, colours and folders of their own."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.comfyui import Event, Wire

LEFT_OUT = frozenset(
    {
        "timestamp", "create_time", "execution_start_time", "execution_end_time", "pagination",
        "traceback", "current_inputs", "current_outputs",
    }
)  # fmt: skip
"""What differs from run to run, or between machines."""


class Replay:
    """One recorded sequence with fresh ids, colours and folders, so that it can be sent to any server at any time."""

    def __init__(self, wire: Wire, steps: list[dict[str, Any]], left_out: frozenset[str] = LEFT_OUT) -> None:
        self.wire = wire
        self.left_out = left_out
        self.texts: dict[str, str] = {}
        self.mark = uuid.uuid4().hex
        self.shift = uuid.uuid4().int % 0x7FFFFF
        self.base: int | None = None
        for send in (step["send"] for step in steps if "send" in step):
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
            if key in self.left_out:
                continue
            if key in ("number", "priority"):
                inner = self.counted(inner)
            elif key == "prompt" and isinstance(inner, list):
                inner = [self.counted(inner[0]), *inner[1:]]
            elif key in ("queue_running", "queue_pending"):
                inner = [[self.counted(item[0]), *item[1:]] for item in inner]
            kept[key] = self.comparable(inner)
        return kept

    def counted(self, number: float) -> float:
        """A number that the server gave, from the first prompt on; one that the client chose as it is."""
        if isinstance(number, float):
            return number
        self.base = number if self.base is None else self.base
        return number - self.base

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
