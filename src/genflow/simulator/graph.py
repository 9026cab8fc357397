"""In which order ComfyUI runs a graph's nodes, and the key of its node cache."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from genflow.simulator.catalog import spec_of
from genflow.simulator.folders import Folders
from genflow.simulator.nodes import Result, pixels_of

CACHE_PIXELS = 64_000_000
CACHE_ENTRIES = 2_000


def is_link(value: Any) -> bool:
    """Whether an input is a link to another node's slot."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def links_of(node: dict[str, Any]) -> list[str]:
    """The ids of the nodes that a node is linked to, in the order of its inputs."""
    return [value[0] for value in node["inputs"].values() if is_link(value)]


def _is_output(node: dict[str, Any]) -> bool:
    spec = spec_of(node["class_type"])
    return spec is not None and spec.output_node


def running_order(graph: dict[str, Any], outputs: list[str], cached: Callable[[str], bool]) -> list[str]:
    """The nodes that will run, and the output nodes, in ComfyUI's order.

    Nodes are gathered from the outputs backwards, the last input first; of those that are ready an output is picked
    first, then what stands one or two links before one, then the oldest.
    """
    gathered: list[str] = []
    for output in outputs:
        stack = [output]
        while stack:
            node_id = stack.pop()
            if node_id not in gathered:
                gathered.append(node_id)
                stack += [source for source in links_of(graph[node_id]) if not cached(source)]
    waits = {node_id: {source for source in links_of(graph[node_id]) if source in gathered} for node_id in gathered}
    blocks: dict[str, list[str]] = {node_id: [] for node_id in gathered}
    for node_id in gathered:
        for source in waits[node_id]:
            blocks[source].append(node_id)
    order: list[str] = []
    left = list(gathered)
    while left:
        ready = [node_id for node_id in left if not waits[node_id]]
        picked = _pick(graph, ready, blocks)
        left.remove(picked)
        order.append(picked)
        for node_id in blocks[picked]:
            waits[node_id].discard(picked)
    return order


def _pick(graph: dict[str, Any], ready: list[str], blocks: dict[str, list[str]]) -> str:
    for node_id in ready:
        if _is_output(graph[node_id]):
            return node_id
    for node_id in ready:
        if any(_is_output(graph[blocked]) for blocked in blocks[node_id]):
            return node_id
    for node_id in ready:
        if any(_is_output(graph[second]) for first in blocks[node_id] for second in blocks[first]):
            return node_id
    return ready[0]


def cache_keys(graph: dict[str, Any], outputs: list[str], folders: Folders) -> dict[str, str]:
    """The cache key of every node that an output needs: its class, its inputs, and its ancestors' keys.

    Not the node's id; unknown extra inputs count; LoadImage's key holds the file's SHA-256.
    """
    keys: dict[str, str] = {}

    def key(node_id: str) -> str:
        if node_id not in keys:
            node = graph[node_id]
            told: dict[str, Any] = {}
            for name, value in node["inputs"].items():
                told[name] = [key(value[0]), value[1]] if is_link(value) else [value]
            if node["class_type"] == "LoadImage":
                path = folders.annotated(node["inputs"]["image"])
                told["\0file"] = hashlib.sha256(path.read_bytes()).hexdigest() if path else None
            text = json.dumps([node["class_type"], told], sort_keys=True)
            keys[node_id] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return keys[node_id]

    for output in outputs:
        key(output)
    return keys


class NodeCache:
    """Results by key, the least recently used dropped first; bounded by entries and pixels."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Result] = OrderedDict()
        self._pixels = 0

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Result | None:
        """The result of a key, which makes it the most recently used."""
        result = self._entries.get(key)
        if result is not None:
            self._entries.move_to_end(key)
        return result

    def put(self, key: str, result: Result) -> None:
        """Keep a result."""
        self._entries[key] = result
        self._pixels += pixels_of(list(result.values))
        while len(self._entries) > CACHE_ENTRIES or (self._pixels > CACHE_PIXELS and len(self._entries) > 1):
            _, dropped = self._entries.popitem(last=False)
            self._pixels -= pixels_of(list(dropped.values))

    def clear(self) -> None:
        """Drop everything, as `/free {"free_memory": true}` does."""
        self._entries.clear()
        self._pixels = 0
