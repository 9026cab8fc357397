"""What ComfyUI says of a graph before it queues it: the same checks, words and shapes as recorded.

Follows docs/design/comfyui.md, section 1: one good output is enough for a 200; the bad branches stand in `node_errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from genflow.simulator.catalog import Catalog, InputSpec, NodeSpec, spec_of

FileCheck = Callable[[str], bool]
"""Whether LoadImage would find that file."""

LIST_SHOWN = 20
"""A combo of up to this many entries is echoed whole; of a longer one only the length is told."""


@dataclass
class Verdict:
    """What validation found: an error means 400; `outputs` are those that will run."""

    error: dict[str, Any] | None = None
    outputs: list[str] = field(default_factory=list)
    node_errors: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Checked:
    valid: bool
    errors: list[dict[str, Any]]


def _error(kind: str, message: str, details: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "message": message, "details": details, "extra_info": extra_info}


def validate_prompt(
    graph: Any, catalog: Catalog, has_file: FileCheck, *, targets: Any = None, old: bool = False
) -> Verdict:
    """Check a graph. Shapes that ComfyUI does not expect raise here as they do there (the POST is then a 500)."""
    outputs: list[str] = []
    for node_id, node in graph.items():
        spec = catalog.spec_of(node["class_type"]) if "class_type" in node else None
        if spec is None:
            return Verdict(error=_missing_node(node_id, node, old=old))
        if spec.output_node and (targets is None or node_id in targets):
            outputs.append(node_id)
    if not outputs:
        return Verdict(error=_error("prompt_no_outputs", "Prompt has no outputs", "", {}))
    return _Validation(graph, catalog, has_file).judge(outputs)


def _missing_node(node_id: str, node: dict[str, Any], *, old: bool) -> dict[str, Any]:
    class_type = node.get("class_type")
    if old:
        what = f"node {class_type} does not exist" if class_type else "a node is missing the class_type property"
        return _error("invalid_prompt", f"Cannot execute because {what}.", f"Node ID '#{node_id}'", {})
    title = node.get("_meta", {}).get("title") or class_type
    if class_type is None:
        message = f"Node 'ID #{node_id}' has no class_type. The workflow may be corrupted or a custom node is missing."
    else:
        message = f"Node '{title}' not found. The custom node may not be installed."
    extra = {"node_id": node_id, "class_type": class_type, "node_title": title}
    return _error("missing_node_type", message, f"Node ID '#{node_id}'", extra)


class _Validation:
    def __init__(self, graph: dict[str, Any], catalog: Catalog, has_file: FileCheck) -> None:
        self.graph = graph
        self.catalog = catalog
        self.has_file = has_file
        self.checked: dict[str, _Checked] = {}
        self.path: list[str] = []

    def judge(self, outputs: list[str]) -> Verdict:
        verdict = Verdict()
        reasons: list[str] = []
        for output in outputs:
            self.path.clear()
            try:
                result = self.check(output)
            except Exception as fault:
                errors = [_raised("exception_during_validation", "Exception when validating node", fault, {})]
                result = self.checked[output] = _Checked(False, errors)
            if result.valid:
                verdict.outputs.append(output)
                continue
            reasons += [f"{error['message']}: {error['details']}" for error in result.errors]
            for node_id, seen in self.checked.items():
                if not seen.valid and seen.errors:
                    shown = verdict.node_errors.setdefault(
                        node_id,
                        {"errors": seen.errors, "dependent_outputs": [], "class_type": self._class(node_id)},
                    )
                    shown["dependent_outputs"].append(output)
        if not verdict.outputs:
            verdict.error = _error(
                "prompt_outputs_failed_validation", "Prompt outputs failed validation", "\n".join(reasons), {}
            )
        return verdict

    def _class(self, node_id: str) -> str:
        return str(self.graph[node_id]["class_type"])

    def check(self, node_id: str) -> _Checked:
        if node_id in self.checked:
            return self.checked[node_id]
        if node_id in self.path:
            return self._cycle(node_id)
        self.path.append(node_id)
        try:
            node = self.graph[node_id]
            inputs = node["inputs"]
            spec = spec_of(node["class_type"])
            assert spec is not None  # noqa: S101 (every class was looked up before)
            errors: list[dict[str, Any]] = []
            valid = True
            for wanted in spec.inputs:
                valid = self._check_input(spec, wanted, inputs, errors) and valid
            if spec.name == "LoadImage" and isinstance(inputs.get("image"), str) and not self.has_file(inputs["image"]):
                errors.append(
                    _error(
                        "custom_validation_failed",
                        "Custom validation failed for node",
                        f"image - Invalid image file: {inputs['image']}",
                        {"input_name": "image"},
                    )
                )
        finally:
            self.path.pop()
        already = self.checked.get(node_id)
        if already is not None and already.errors:  # a cycle was found through this node
            return already
        result = self.checked[node_id] = _Checked(valid and not errors, errors)
        return result

    def _cycle(self, node_id: str) -> _Checked:
        nodes = self.path[self.path.index(node_id) :]
        shown = " -> ".join(f"{each} ({self._class(each)})" for each in [*nodes, node_id])
        extra = {"node_id": node_id, "cycle_nodes": nodes}
        error = _error("dependency_cycle", "Dependency cycle detected", shown, extra)
        result = self.checked[node_id] = _Checked(False, [error])
        return result

    def _check_input(
        self, spec: NodeSpec, wanted: InputSpec, inputs: dict[str, Any], errors: list[dict[str, Any]]
    ) -> bool:
        name = wanted.name
        if name not in inputs:
            if wanted.required:
                errors.append(_error("required_input_missing", "Required input is missing", name, {"input_name": name}))
            return not wanted.required
        value = inputs[name]
        options = self.catalog.options(spec.name, wanted)
        extra: dict[str, Any] = {"input_name": name, "input_config": wanted.shown(options)}
        if isinstance(value, list):
            return self._check_link(wanted, value, extra, errors)
        extra["received_value"] = value
        try:
            value = inputs[name] = _converted(wanted.kind, value)
        except (ValueError, TypeError) as fault:
            message = f"Failed to convert an input value to a {wanted.kind} value"
            extra["exception_message"] = str(fault)
            errors.append(_error("invalid_input_type", message, f"{name}, {value}, {fault}", extra))
            return False
        return _check_range(wanted, value, extra, errors) and (
            (spec.name == "LoadImage" and name == "image") or _check_choice(wanted, value, options, errors)
        )

    def _check_link(
        self, wanted: InputSpec, link: list[Any], extra: dict[str, Any], errors: list[dict[str, Any]]
    ) -> bool:
        name = wanted.name
        if len(link) != 2:
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            errors.append(_error("bad_linked_input", message, name, extra | {"received_value": link}))
            return False
        source = link[0]
        source_spec = spec_of(self.graph[source]["class_type"])
        assert source_spec is not None  # noqa: S101
        # A tuple, so that a slot that is not there raises what ComfyUI raises.
        received = source_spec.outputs[link[1]]
        kind = "COMBO" if isinstance(wanted.kind, list) else wanted.kind
        if kind not in ("*", received):
            details = f"{name}, received_type({received}) mismatch input_type({wanted.kind})"
            extra |= {"received_type": received, "linked_node": link}
            errors.append(_error("return_type_mismatch", "Return type mismatch between linked nodes", details, extra))
            return False
        try:
            return self.check(source).valid
        except Exception as fault:
            kind, message = "exception_during_inner_validation", "Exception when validating inner node"
            self.checked[source] = _Checked(False, [_raised(kind, message, fault, extra, link)])
            return False


def _converted(kind: Any, value: Any) -> Any:
    if kind == "INT":
        return int(value)
    if kind == "FLOAT":
        return float(value)
    if kind == "STRING":
        return str(value)
    if kind == "BOOLEAN":
        return bool(value)
    return value


def _check_range(wanted: InputSpec, value: Any, extra: dict[str, Any], errors: list[dict[str, Any]]) -> bool:
    extra = extra | {"received_value": value}
    low, high = wanted.config.get("min"), wanted.config.get("max")
    if low is not None and value < low:
        message = f"Value {value} smaller than min of {low}"
        errors.append(_error("value_smaller_than_min", message, wanted.name, extra))
        return False
    if high is not None and value > high:
        message = f"Value {value} bigger than max of {high}"
        errors.append(_error("value_bigger_than_max", message, wanted.name, extra))
        return False
    return True


def _check_choice(wanted: InputSpec, value: Any, options: list[str] | None, errors: list[dict[str, Any]]) -> bool:
    if options is None or value in options:
        return True
    errors.append(not_in_list(wanted, value, options))
    return False


def not_in_list(wanted: InputSpec, value: Any, options: list[str]) -> dict[str, Any]:
    """The `value_not_in_list` error, which echoes a short list of choices whole."""
    short = len(options) <= LIST_SHOWN
    listed = str(options) if short else f"(list of length {len(options)})"
    extra = {
        "input_name": wanted.name,
        "input_config": wanted.shown(options) if short else None,
        "received_value": value,
    }
    return _error("value_not_in_list", "Value not in list", f"{wanted.name}: '{value}' not in {listed}", extra)


def _raised(
    kind: str, message: str, fault: Exception, extra: dict[str, Any], link: list[Any] | None = None
) -> dict[str, Any]:
    told = {"exception_type": type(fault).__name__, "traceback": _TRACEBACK}
    if link is not None:
        told = extra | {"exception_message": str(fault)} | told | {"linked_node": link}
    return _error(kind, message, str(fault), told)


_TRACEBACK = ['  File "/comfyui/execution.py", line 955, in validate_inputs\n']
"""A real server sends its paths; one line is enough to show that they leak."""
