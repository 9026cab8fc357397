"""A workflow against what the fleet's servers have: refused here is what each of them would refuse, and no more.

Pure. It follows ComfyUI's own rules (docs/design/comfyui.md, section 1): a class that is not there fails the whole
graph, inputs count only in nodes that an output node needs, unknown inputs are ignored, numbers are converted before
they are compared. What `/object_info` does not tell, such as a node's own checks, is left to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from genflow.errors import GenflowError
from genflow.filenames import ASSET_TYPE
from genflow.needs import Capabilities, choices_of, closest_lack, is_upload, needs_of
from genflow.workflow import is_link

SHOWN = 100
"""Errors that a refusal names at most."""
CLASSES_SHOWN = 10

CHANGING = frozenset({"unknown_class", "value_not_in_list", "no_single_server"})
"""Reasons that a model or a node added to a server does away with: what is known is looked at anew first."""

_CONVERTED: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}

_CHECKED_BY_THE_NODE = {("LoadLatent", "latent")}
"""Choices of files that ComfyUI's node looks for by itself, in subfolders too."""


class Fault(NamedTuple):
    """What is wrong with one input of one node, in the words of ComfyUI's `node_errors` where it has some."""

    node: str
    class_type: str
    field: str
    reason: str
    message: str


@dataclass(frozen=True)
class FleetNodes:
    """What the servers that are known have: each one's `/object_info`, equal ones once."""

    infos: tuple[Mapping[str, Any], ...]
    capabilities: tuple[Capabilities, ...]

    def of(self, class_type: str) -> list[Mapping[str, Any]]:
        """The descriptions of a class, those of all servers that have it, equal ones once."""
        found: list[Mapping[str, Any]] = []
        for info in self.infos:
            node = info.get(class_type)
            if node is not None and node not in found:
                found.append(node if isinstance(node, Mapping) else {})
        return found


def check_workflow(graph: Mapping[str, Any], fleet: FleetNodes | None, *, lenient: bool = False) -> None:
    """Check a workflow of sound structure against the fleet; None (nothing is known yet) accepts everything.

    Raises GenflowError `invalid_workflow`: with `node_errors` for what no server would take, and with the reason
    `no_single_server` where the nodes and models are there, but not all on one server; `lenient` lets that one wait.
    """
    if fleet is None:
        return
    described = {name: fleet.of(name) for name in {content["class_type"] for content in graph.values()}}
    if unknown := [_unknown(node, graph) for node in graph if not described[graph[node]["class_type"]]]:
        names = ", ".join(sorted({fault.class_type[:80] for fault in unknown})[:CLASSES_SHOWN])
        raise _refused(unknown, f"No server has these node classes: {names}.")
    outputs = [node for node in graph if any(each.get("output_node") for each in described[graph[node]["class_type"]])]
    if not outputs:
        raise GenflowError(
            "invalid_workflow",
            "The workflow has no output node (such as SaveImage), so it would make nothing.",
            details={"field": "workflow", "reason": "no_output_node"},
        )
    if faults := _Walk(graph, described).faults(outputs):
        raise _refused(faults)
    why = None if lenient else closest_lack(needs_of(graph, fleet.capabilities), fleet.capabilities)
    if why is not None:
        details = {"field": "workflow", "reason": "no_single_server"}
        raise GenflowError("invalid_workflow", f"{why[0].upper()}{why[1:]}.", details=details)


def may_pass_soon(error: GenflowError) -> bool:
    """Whether a refusal of `check_workflow` stands on lists that may have changed since they were read."""
    details = error.details or {}
    named = [each["reason"] for errors in details.get("node_errors", {}).values() for each in errors]
    return not CHANGING.isdisjoint([*named, details.get("reason")])


def _unknown(node: str, graph: Mapping[str, Any]) -> Fault:
    class_type = graph[node]["class_type"]
    message = f"no server has the node class {class_type[:120]}"
    return Fault(node, class_type, "class_type", "unknown_class", message)


def _refused(faults: Sequence[Fault], message: str | None = None) -> GenflowError:
    node_errors: dict[str, list[dict[str, str]]] = {}
    for fault in faults[:SHOWN]:
        node_errors.setdefault(fault.node, []).append(
            {"field": fault.field, "reason": fault.reason, "message": fault.message, "class_type": fault.class_type}
        )
    first = faults[0]
    more = f" ({len(faults) - 1} more in node_errors)" if len(faults) > 1 else ""
    message = message or f"Node {first.node[:80]} ({first.class_type[:80]}): {first.message}{more}."
    return GenflowError("invalid_workflow", message, details={"node_errors": node_errors})


class _Walk:
    """From the output nodes along the links, each node once."""

    def __init__(self, graph: Mapping[str, Any], described: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._graph = graph
        self._described = described

    def faults(self, outputs: Sequence[str]) -> list[Fault]:
        """Everything that is wrong with the nodes that would be validated, or run, for these outputs.

        ComfyUI follows the links of declared inputs when it validates, and those of all inputs when it runs.
        """
        run = self._reached(outputs, declared=False)
        validated = self._reached(outputs, declared=True)
        faults = [fault for node in run for fault in self._links_to_nowhere(node)]
        faults += [fault for node in validated for fault in self._of(node)]
        return faults + self._circle(run)

    def _reached(self, outputs: Sequence[str], *, declared: bool) -> dict[str, None]:
        ahead, seen = list(outputs), dict.fromkeys(outputs)
        while ahead:
            node = ahead.pop()
            known = self._declared(node) if declared else None
            for source, field in self._links(node):
                if source in self._graph and source not in seen and (known is None or field in known):
                    seen[source] = None
                    ahead.append(source)
        return seen

    def _declared(self, node: str) -> set[str]:
        return {field for each in self._described[self._graph[node]["class_type"]] for field, _, _ in _inputs(each)}

    def _links(self, node: str) -> Iterator[tuple[str, str]]:
        """The nodes that this one's inputs are linked to, each with the input's name."""
        for field, value in self._graph[node]["inputs"].items():
            if is_link(value):
                yield value[0], field

    def _links_to_nowhere(self, node: str) -> Iterator[Fault]:
        for source, field in self._links(node):
            if source not in self._graph:
                message = f"the input {field} is linked to node {source[:80]}, which is not in the workflow"
                yield Fault(node, self._graph[node]["class_type"], field, "bad_link", message)

    def _of(self, node: str) -> list[Fault]:
        """A node's faults: none where one server's description finds none, else those of the kindest."""
        described = self._described[self._graph[node]["class_type"]]
        return min((list(self._judged(node, each)) for each in described), key=len, default=[])

    def _judged(self, node: str, described: Mapping[str, Any]) -> Iterator[Fault]:
        class_type, inputs = self._graph[node]["class_type"], self._graph[node]["inputs"]
        for field, spec, required in _inputs(described):
            if field not in inputs:
                if required and not _is_dynamic(spec):
                    yield Fault(node, class_type, field, "required_input_missing", f"the input {field} is missing")
                continue
            value = inputs[field]
            if isinstance(value, list):
                fault = self._link_fault(value, spec)
            else:
                listed = (class_type, field) not in _CHECKED_BY_THE_NODE
                fault = value_fault(value, spec, listed=listed)
            if fault is not None:
                yield Fault(node, class_type, field, fault[0], f"{field}: {fault[1]}")

    def _link_fault(self, link: list[Any], spec: Any) -> tuple[str, str] | None:
        if len(link) != 2:
            return "bad_linked_input", "a list is a link, [node id, output number], and nothing else"
        source, index = link
        if not isinstance(source, str):
            return "bad_link", "a link names its node by the text of its id"
        if source not in self._graph:
            return None  # told already
        described = self._described[self._graph[source]["class_type"]]
        faults = [_output_fault(each.get("output"), index, spec, source) for each in described]
        return None if None in faults else faults[0]

    def _circle(self, seen: Mapping[str, None]) -> list[Fault]:
        """A node in a circle of links, if there is one among those seen: whatever is left once all others are gone."""
        needs = {node: {source for source, _ in self._links(node) if source in seen} for node in seen}
        users: dict[str, list[str]] = {}
        for node, sources in needs.items():
            for source in sources:
                users.setdefault(source, []).append(node)
        free = [node for node, sources in needs.items() if not sources]
        while free:
            done = free.pop()
            del needs[done]
            for user in users.get(done, ()):
                needs[user].discard(done)
                if not needs[user]:
                    free.append(user)
        if not needs:
            return []
        at, path = min(needs), dict[str, str]()
        while at not in path:
            path[at] = min(needs[at])
            at = path[at]
        field = next(field for source, field in self._links(at) if source == path[at])
        message = f"{field}: following the links from this node leads back to it"
        return [Fault(at, self._graph[at]["class_type"], field, "dependency_cycle", message)]


def _inputs(described: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    groups = described.get("input")
    for group in ("required", "optional"):
        fields = groups.get(group) if isinstance(groups, Mapping) else None
        for field, spec in fields.items() if isinstance(fields, Mapping) else ():
            if isinstance(spec, list) and spec:
                yield field, spec, group == "required"


def _config(spec: Sequence[Any]) -> Mapping[str, Any]:
    return spec[1] if len(spec) > 1 and isinstance(spec[1], Mapping) else {}


def _is_dynamic(spec: Sequence[Any]) -> bool:
    """An input that stands for others, whose names the workflow has instead of its own."""
    return isinstance(spec[0], str) and spec[0].startswith("COMFY_") and spec[0].endswith("_V3")


def _output_fault(outputs: Any, index: Any, spec: Sequence[Any], source: str) -> tuple[str, str] | None:
    if not isinstance(outputs, list) or "*" in outputs:
        return None  # some nodes make up their outputs as they are asked for
    if not isinstance(index, int) or not -len(outputs) <= index < len(outputs):
        return (
            "bad_link",
            f"node {source[:80]} has {len(outputs)} outputs, counted from 0; there is no {str(index)[:20]}",
        )
    wanted, got = spec[0], outputs[index]
    if not isinstance(wanted, str) or not isinstance(got, str) or _is_dynamic(spec) or _is_dynamic([got]):
        return None
    wants, gets = ({each.strip() for each in text.split(",")} for text in (wanted, got))
    if not wants.isdisjoint(gets) or not {"*", "COMBO"}.isdisjoint(wants | gets):
        return None
    return "return_type_mismatch", f"it takes {wanted[:80]}, and output {index} of node {source[:80]} is {got[:80]}"


def value_fault(value: Any, spec: Sequence[Any], *, listed: bool = True) -> tuple[str, str] | None:
    """The reason and the words for a value that ComfyUI refuses at an input with this description; None if it takes it.

    `listed`: whether a value must be one of the list, where the input has one.
    """
    kind, config = spec[0], _config(spec)
    if isinstance(value, dict) and "__value__" in value:
        value = value["__value__"]  # how a list is written that is no link
    if isinstance(value, dict) and value.get("__type") == ASSET_TYPE:
        return None  # the server learns its name once it is there
    try:
        value = _CONVERTED[kind](value) if isinstance(kind, str) and kind in _CONVERTED else value
    except (TypeError, ValueError, OverflowError):
        return "invalid_input_type", f"{_shown(value)} can't be read as {kind}"
    low, high = config.get("min"), config.get("max")
    if isinstance(value, int | float):
        if isinstance(low, int | float) and value < low:
            return "value_smaller_than_min", f"{_shown(value)} is smaller than the least, {low}"
        if isinstance(high, int | float) and value > high:
            return "value_bigger_than_max", f"{_shown(value)} is bigger than the most, {high}"
    options = choices_of(spec)
    if options is None or not listed or is_upload(spec) or "remote" in config:
        return None
    chosen = value if config.get("multiselect") and isinstance(value, list) else [value]
    wrong = [each for each in chosen if each not in options]
    if not wrong:
        return None
    # The list itself is not told: it may be that of all files on somebody's server.
    return "value_not_in_list", f"{_shown(wrong[0])} is none of the {len(options)} choices that the servers have"


def _shown(value: Any) -> str:
    return repr(value)[:120]
