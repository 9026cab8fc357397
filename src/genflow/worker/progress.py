"""Truthful progress from the events of one run: nodes done of all that will run, and steps inside the current one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import structlog

from genflow.comfy import Event, NodesCached, NodeStarted, NodeStates, StepProgress
from genflow.queue import Ledger

log = structlog.get_logger()

FLUSH_S = 0.5
"""Seconds between two writes of live progress: twice a second is what the Comfy API v2 shows."""


class Progress:
    """Collects what one run tells. Each snapshot is complete by itself."""

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self._graph = graph
        self._done: set[str] = set()
        self._current: str | None = None
        self._step = 0.0
        self._steps = 0.0

    def take(self, event: Event) -> bool:
        """Learn from an event; whether the snapshot changed."""
        match event:
            case NodesCached(nodes=nodes):
                self._done |= {node for node in nodes if node in self._graph}
            case NodeStarted(node_id=node) if node in self._graph:
                self._enter(node)
            case NodeStates(nodes=states):
                for node, (state, value, maximum) in states.items():
                    if node not in self._graph:
                        continue
                    if state == "finished":
                        self._done.add(node)
                    elif state == "running":
                        self._enter(node)
                        self._step, self._steps = value, maximum
            case StepProgress(node_id=node, value=value, maximum=maximum) if node in self._graph:
                self._enter(node)
                self._step, self._steps = value, maximum
            case _:
                return False
        return True

    def _enter(self, node: str) -> None:
        if node != self._current:
            self._current, self._step, self._steps = node, 0.0, 0.0

    def snapshot(self) -> dict[str, Any]:
        """Progress in the shape of the Comfy API v2; `value` is 0…1."""
        total = len(self._graph)
        inside = self._step / self._steps if self._steps > 1 and self._current not in self._done else 0.0
        node = self._graph.get(self._current or "")
        stepping = self._steps > 1
        return {
            "value": min(1.0, (len(self._done) + min(1.0, inside)) / total) if total else 0.0,
            "nodes_done": len(self._done),
            "nodes_total": total,
            "current_node": self._current,
            "current_node_class": node.get("class_type") if isinstance(node, dict) else None,
            "step": int(self._step) if stepping else None,
            "steps": int(self._steps) if stepping else None,
            "message": None,
        }


class LiveProgress:
    """Writes the newest progress of all runs of a worker, in one statement, where somebody watches."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._news: dict[UUID, Progress] = {}

    def put(self, job_id: UUID, progress: Progress) -> None:
        """This job's progress changed."""
        self._news[job_id] = progress

    async def loop(self) -> None:
        """Write what is new, for as long as the worker runs."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if not self._news:
                continue
            news, self._news = self._news, {}
            try:
                await self._ledger.live_progress({job: progress.snapshot() for job, progress in news.items()})
            except Exception:
                log.exception("live_progress_not_written", next="genflow health")
