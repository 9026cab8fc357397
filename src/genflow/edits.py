"""Changing inputs of a workflow by NODE.INPUT, as a jobs file's `set` and a requeue's `--set` name them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from genflow.errors import GenflowError, clean_text
from genflow.workflow import parse_workflow

_TOLD = 12


def set_inputs(workflow: str, values: Mapping[str, Any]) -> str:
    """The workflow's text with these inputs changed, such as `{"3.seed": 7}`. Other numbers keep their value exactly.

    Raises GenflowError `invalid_set` where a name is not NODE.INPUT of this workflow, where the input is a link to
    another node, or where the value is neither text, number, truth value nor null; and what `parse_workflow` raises.
    """
    graph = parse_workflow(workflow)
    for name, value in values.items():
        node, dot, key = name.rpartition(".")
        if not dot or not node:
            raise _wrong(name, "a value is set by NODE.INPUT, for example 3.seed")
        if node not in graph:
            raise _wrong(name, f"the workflow has no node {clean_text(node, 80)!r}; it has {_some(list(graph))}")
        inputs = graph[node]["inputs"]
        if key not in inputs:
            kind = clean_text(str(graph[node]["class_type"]), 80)
            raise _wrong(
                name, f"node {node} ({kind}) has no input {clean_text(key, 80)!r}; it has {_some(list(inputs))}"
            )
        if isinstance(inputs[key], list):
            raise _wrong(name, "this input is a link to another node, not a value")
        if value is not None and not isinstance(value, str | int | float):
            raise _wrong(name, f"the value must be a text, a number, true, false or null, not {type(value).__name__}")
        inputs[key] = value
    return json.dumps(graph, ensure_ascii=False)


def _some(names: Sequence[str]) -> str:
    told = ", ".join(clean_text(name, 80) for name in names[:_TOLD])
    return told + (f" and {len(names) - _TOLD} more" if len(names) > _TOLD else "") if names else "none"


def _wrong(name: str, why: str) -> GenflowError:
    shown = clean_text(name, 120)
    return GenflowError("invalid_set", f"{shown}: {why}", status=422, details={"field": "set", "got": shown})
