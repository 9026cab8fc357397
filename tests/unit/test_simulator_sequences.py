"""Recorded sequences in which a prompt runs for a while: the simulator says the same, in the same order.

What ran for seconds there is held here until the recording goes on with it.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.comfyui import Event, Socket, Wire, recorded, simulated
from tests.support.replays import LEFT_OUT, Replay

NOISE = frozenset({"status", "progress", "progress_state", "binary"})
LEFT_OUT_TOO = LEFT_OUT | {"exception_message", "exception_type"}


class Sequence(Replay):
    """One recorded sequence with its sockets and the prompt that is held."""

    def __init__(self, wire: Wire, steps: list[dict[str, Any]]) -> None:
        super().__init__(wire, steps, LEFT_OUT_TOO)
        self.sockets: dict[str, Socket] = {}
        self.held: str | None = None
        self.known: set[str] = set()
        """First nodes that the node cache holds."""

    def comparable(self, value: Any) -> Any:
        value = super().comparable(value)
        if isinstance(value, dict) and "executed" in value:  # where it stopped is not where it slept
            return {key: inner for key, inner in value.items() if key not in ("executed", "node_id", "node_type")}
        return value

    async def post(self, step: dict[str, Any]) -> None:
        """Send one request; a prompt that ran for a while and runs at once is held before its last node."""
        send = step["send"]
        graph = send[2].get("prompt", {}) if len(send) == 3 else {}
        first = json.dumps(graph.get("1"))
        hold = self.held is None and "_tag" in json.dumps(graph)
        if hold:
            await self.wire.knobs(hold=2 if first in self.known else 3)
        named = [part for part in (send[1], str(send[2:])) if self.held is not None and self.held in self.ours(part)]
        await self.step(step, [])
        if hold:
            self.held = self.ours(send[2]["prompt_id"])
            await self.wire.happened("held", self.held)
            await self.wire.knobs(hold=None)
        if named and send[0] == "POST" and ("interrupt" in send[1] or "cancel" in send[1]):
            await self.wire.happened("ended", self.held)
            self.held = None
        self.known.add(first)

    async def hears(self, step: dict[str, Any]) -> None:
        """Wait for a socket's next event and compare it."""
        data = self.ours(step["data"])
        if step["type"] == "executing" and data["node"] == "3" and data["prompt_id"] == self.held:
            await self.wire.knobs(release=True)
            self.held = None
        heard = await self.sockets[step["hears"]].until(lambda event: event["type"] not in NOISE)
        assert (heard[-1]["type"], self.comparable(heard[-1]["data"])) == (step["type"], data)

    async def quiet(self) -> list[Event]:
        """What open sockets heard beyond the recording, once nothing runs any more."""
        if self.held is not None:
            await self.wire.knobs(release=True)
            await self.wire.happened("ended", self.held)
        more: list[Event] = []
        for socket in self.sockets.values():
            while not socket.socket.closed and not await socket.silent(0.05):
                more += [event for event in socket.heard[-1:] if event["type"] not in NOISE]
        return more


@pytest.mark.parametrize("case", recorded("sequences"), ids=lambda case: case["case"])
async def test_a_recorded_sequence_is_told_in_its_order(case: dict[str, Any]) -> None:
    async with simulated() as (wire, _), AsyncExitStack() as stack:
        sequence = Sequence(wire, case["steps"])
        if case["warm"] is not None:
            await wire.run(sequence.ours(case["warm"]))
            sequence.known.add(json.dumps(case["warm"]["1"]))
        for step in case["steps"]:
            if "open" in step:
                opened = wire.socket(None if step["client"] is None else sequence.ours(step["client"]))
                sequence.sockets[step["open"]] = await stack.enter_async_context(opened)
            elif "close" in step:
                await sequence.sockets[step["close"]].socket.close()
            elif "say" in step:
                await sequence.sockets[step["say"]].socket.send_json(step["data"])
            elif "hears" in step:
                await sequence.hears(step)
            else:
                await sequence.post(step)
        assert await sequence.quiet() == []
