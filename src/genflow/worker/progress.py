"""Truthful progress from the events of one run: nodes done of all that will run, and steps inside the current one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from genflow.comfy import Event, NodesCached, NodeStarted, NodeStates, RunEnded, StepProgress


class Progress:
    """Collects what one run tells. Each snapshot is complete by itself, and `value` never falls.

    `will_run` are the nodes that an output node needs: ComfyUI runs no others.
    """

    def __init__(self, graph: Mapping[str, Any], will_run: Collection[str]) -> None:
        self._graph = graph
        self._will_run = set(will_run)
        self._done: set[str] = set()
        self._current: str | None = None
        self._step = 0.0
        self._steps = 0.0
        self._value = 0.0

    @property
    def current(self) -> str | None:
        """The node that runs, as far as was told."""
        return self._current

    def take(self, event: Event) -> bool:
        """Learn from an event; whether the snapshot changed."""
        match event:
            case NodesCached(nodes=nodes):
                self._finish(*nodes)
            case NodeStarted(node_id=node) if node in self._graph:
                self._enter(node)
            case NodeStates(nodes=states):
                for node, (state, value, maximum) in states.items():
                    if state == "finished":
                        self._finish(node)
                    elif state == "running" and node in self._graph:
                        self._enter(node)
                        self._step, self._steps = value, maximum
            case StepProgress(node_id=node, value=value, maximum=maximum) if node in self._graph:
                self._enter(node)
                self._step, self._steps = value, maximum
            case RunEnded(outcome="success"):
                self._finish(*self._will_run)  # also those that a lazy node left out
            case _:
                return False
        return True

    def _finish(self, *nodes: str) -> None:
        self._done |= {node for node in nodes if node in self._graph}
        self._will_run |= self._done

    def _enter(self, node: str) -> None:
        self._will_run.add(node)
        if node != self._current:
            self._current, self._step, self._steps = node, 0.0, 0.0

    def snapshot(self) -> dict[str, Any]:
        """Progress in the shape of the Comfy API v2; `value` is 0…1."""
        total = len(self._will_run)
        inside = self._step / self._steps if self._steps > 1 and self._current not in self._done else 0.0
        share = (len(self._done) + min(1.0, max(0.0, inside))) / total if total else 0.0
        self._value = max(self._value, min(1.0, share))
        node = self._graph.get(self._current or "")
        stepping = self._steps > 1
        return {
            "value": self._value,
            "nodes_done": len(self._done),
            "nodes_total": total,
            "current_node": self._current,
            "current_node_class": node.get("class_type") if isinstance(node, dict) else None,
            "step": int(self._step) if stepping else None,
            "steps": int(self._steps) if stepping else None,
            "message": None,
        }
