"""What a workflow needs of a server, and what a server has: node classes, and model files and other named choices.

Pure. A value is a need only where a server that is known offers it: what nobody has is no reason to wait, the server
itself refuses it and names the input. Files that are uploaded for a job, such as LoadImage's, are never needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHOWN = 5
"""How many missing things are named."""

_UPLOADS = ("image_upload", "video_upload", "audio_upload", "file_upload")


@dataclass(frozen=True, slots=True)
class Needs:
    """Node classes, and (node class, input, value) for each choice out of a list; both sorted, each once."""

    nodes: tuple[str, ...] = ()
    values: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.values)

    @property
    def hash(self) -> bytes:
        """What tells one class of jobs from another; empty for a job that any server can run."""
        return hashlib.sha256(json.dumps(self.as_json()).encode()).digest() if self else b""

    def as_json(self) -> dict[str, Any]:
        """The needs as the database keeps them."""
        return {"nodes": self.nodes, "values": self.values} if self else {}


def needs_from_json(kept: Mapping[str, Any]) -> Needs:
    """The needs as they were kept."""
    values = tuple((node, field, value) for node, field, value in kept.get("values", ()))
    return Needs(tuple(kept.get("nodes", ())), values)


class Capabilities:
    """What one server has, out of its `/object_info`: for each node class the inputs that are choices out of a list."""

    def __init__(self, object_info: Mapping[str, Any]) -> None:
        self._nodes = {name: dict(choices_of_node(node)) for name, node in object_info.items()}
        self._outputs = frozenset(
            name for name, node in object_info.items() if isinstance(node, dict) and node.get("output_node") is True
        )

    def has(self, node: str) -> bool:
        """Whether the server has this node class."""
        return node in self._nodes

    def is_output(self, node: str) -> bool:
        """Whether nodes of this class make outputs: a run is all that they need, and nothing else."""
        return node in self._outputs

    def offers(self, node: str, field: str, value: str) -> bool:
        """Whether this value is one of the server's for this input."""
        return value in self._nodes.get(node, {}).get(field, ())

    def lacks(self, needs: Needs) -> list[str]:
        """Everything of the needs that the server has not, in words; nothing where it can run such a job."""
        nodes = [f"node {node}" for node in needs.nodes if not self.has(node)]
        values = [
            f"{value[:120]} ({field} of {node})"
            for node, field, value in needs.values
            if self.has(node) and not self.offers(node, field, value)
        ]
        return nodes + values


def needs_of(graph: Any, known: Sequence[Capabilities]) -> Needs:
    """What a workflow needs, as far as the servers that are `known` tell; nothing where none is.

    Whatever in the graph is not of a workflow's shape needs nothing.
    """
    nodes: set[str] = set()
    values: set[tuple[str, str, str]] = set()
    for content in graph.values() if isinstance(graph, Mapping) else ():
        if not isinstance(content, Mapping):
            continue
        node, inputs = content.get("class_type"), content.get("inputs")
        if not isinstance(node, str) or not any(each.has(node) for each in known):
            continue
        nodes.add(node)
        for field, value in inputs.items() if isinstance(inputs, Mapping) else ():
            if isinstance(value, str) and any(each.offers(node, field, value) for each in known):
                values.add((node, field, value))
    return Needs(tuple(sorted(nodes)), tuple(sorted(values)))


def closest_lack(needs: Needs, known: Sequence[Capabilities]) -> str | None:
    """Why none of the servers that are known can run such a job, or None where one can, or none is known."""
    lacking = [each.lacks(needs) for each in known]
    if not lacking or not all(lacking):
        return None
    least = min(lacking, key=lambda each: (len(each), each))
    more = f" and {len(least) - SHOWN} more" if len(least) > SHOWN else ""
    return f"no known server can run it; the closest lacks {', '.join(least[:SHOWN])}{more}"


def without_uploads(object_info: Mapping[str, Any]) -> dict[str, Any]:
    """The same description without the lists of files that people uploaded, which change all the time."""
    return {name: _without_uploads(node) if isinstance(node, Mapping) else node for name, node in object_info.items()}


def _without_uploads(node: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(node)
    groups = node.get("input")
    if isinstance(groups, Mapping):
        plain["input"] = {
            group: {name: _emptied(spec) for name, spec in fields.items()} if isinstance(fields, Mapping) else fields
            for group, fields in groups.items()
        }
    return plain


def _emptied(spec: Any) -> Any:
    if not is_upload(spec):
        return spec
    kind, config = spec[0], spec[1]
    if isinstance(kind, list):
        return [[], config]
    return [kind, {key: value for key, value in config.items() if key != "options"}]


def is_upload(spec: Any) -> bool:
    """Whether the choices of this input are files that people upload."""
    config = spec[1] if isinstance(spec, list) and len(spec) > 1 else None
    return isinstance(config, Mapping) and any(config.get(flag) for flag in _UPLOADS)


def choices_of_node(node: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """The inputs of a node that are choices out of a list in its description, each with the list; uploads aside."""
    groups = node.get("input") if isinstance(node, Mapping) else None
    for group in ("required", "optional"):
        fields = groups.get(group) if isinstance(groups, Mapping) else None
        for name, spec in fields.items() if isinstance(fields, Mapping) else ():
            options = choices_of(spec)
            if options is not None and not is_upload(spec):
                yield name, frozenset(option for option in options if isinstance(option, str))


def named_choices(inputs: Mapping[str, Any], node: Any) -> Iterator[tuple[str, str]]:
    """The inputs that are choices out of a list in this node's description, each with the text that is chosen."""
    for name, _ in choices_of_node(node):
        if isinstance(value := inputs.get(name), str):
            yield name, value


def choices_of(spec: Any) -> list[Any] | None:
    """The list behind a combo in the old form `[[…], {…}]` or the new one `["COMBO", {"options": […]}]`."""
    if not isinstance(spec, list) or not spec:
        return None
    if isinstance(spec[0], list):
        return spec[0]
    config = spec[1] if len(spec) > 1 else None
    options = config.get("options") if spec[0] == "COMBO" and isinstance(config, Mapping) else None
    return options if isinstance(options, list) else None
