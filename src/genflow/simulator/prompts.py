"""ComfyUI's prompt queue and history, with its order, its races and its oddities (docs/design/comfyui.md, 1 and 3)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any

HISTORY_LIMIT = 10_000


def canonical_uuid(value: Any) -> bool:
    """Whether a value is a UUID in canonical lowercase hyphenated form, the only form taken for ids."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


@dataclass(slots=True)
class Item:
    """A queued prompt: ComfyUI's 5-tuple, and what the simulator means to do with it."""

    number: float
    prompt_id: str
    graph: dict[str, Any]
    extra_data: dict[str, Any]
    outputs: list[str]
    secrets: dict[str, Any] = field(default_factory=dict)
    word: str = "ok"
    submit: str | None = None
    seconds: float | None = None
    """For a busy neighbour's prompt: how long it runs; None for everyone else."""
    arrival: int = 0

    def __lt__(self, other: Item) -> bool:
        # Equal numbers are ordered by prompt id as text, not by arrival (recorded).
        return (self.number, self.prompt_id, self.arrival) < (other.number, other.prompt_id, other.arrival)

    def shown(self) -> list[Any]:
        """This item as /queue and /history show it."""
        return [self.number, self.prompt_id, self.graph, self.extra_data, self.outputs]


class ComparisonError(TypeError):
    """Two items with one number and one id were compared: the POST fails, yet the item is queued."""


class Prompts:
    """Pending, running and ended prompts of one boot."""

    def __init__(self) -> None:
        self.pending: list[Item] = []
        self.standing: list[Item] = []
        """A busy neighbour's prompts: shown and counted, never run."""
        self.running: Item | None = None
        self.history: dict[str, dict[str, Any]] = {}
        self._arrivals = itertools.count()
        self._something = asyncio.Event()

    @property
    def remaining(self) -> int:
        """`queue_remaining`: pending and running together."""
        return len(self.pending) + len(self.standing) + (self.running is not None)

    def put(self, item: Item) -> None:
        """Queue a prompt.

        Raises ComparisonError, as ComfyUI's heap does, when one with the same id and number is pending already;
        the item is in the queue all the same.
        """
        twin = any(other.number == item.number and other.prompt_id == item.prompt_id for other in self.pending)
        item.arrival = next(self._arrivals)
        heapq.heappush(self.pending, item)
        self._something.set()
        if twin:
            raise ComparisonError("'<' not supported between instances of 'dict' and 'dict'")

    async def take(self) -> Item:
        """Wait for the next prompt and make it the running one."""
        while not self.pending:
            self._something.clear()
            await self._something.wait()
        self.running = heapq.heappop(self.pending)
        return self.running

    def done(self, item: Item, entry: dict[str, Any]) -> None:
        """Move the running prompt into the history. A second entry of one id keeps the first one's place."""
        self.running = None
        if len(self.history) > HISTORY_LIMIT:
            self.history.pop(next(iter(self.history)))
        self.history[item.prompt_id] = entry

    def delete_pending(self, prompt_id: str) -> Item | None:
        """Remove the first pending prompt of that id, one per mention; None where there is none."""
        for queue in (self.pending, self.standing):
            for index, item in enumerate(queue):
                if item.prompt_id == prompt_id:
                    queue.pop(index)
                    heapq.heapify(self.pending)
                    return item
        return None

    def clear_pending(self) -> list[Item]:
        """Drop all pending prompts of everybody; which they were."""
        dropped = list(self.pending)
        self.pending.clear()
        self.standing.clear()
        return dropped

    def find_pending(self, prompt_id: str) -> Item | None:
        """The first pending prompt of that id."""
        return next((item for item in (*self.pending, *self.standing) if item.prompt_id == prompt_id), None)

    def shown_history(self, max_items: int | None, offset: int) -> dict[str, Any]:
        """`GET /history`: the last `max_items`, oldest first; with an offset, counted from the oldest."""
        if offset < 0 and max_items is not None:
            offset = len(self.history) - max_items
        shown: dict[str, Any] = {}
        for index, (prompt_id, entry) in enumerate(self.history.items()):
            if index >= offset:
                shown[prompt_id] = entry
                if max_items is not None and len(shown) >= max_items:
                    break
        return shown
