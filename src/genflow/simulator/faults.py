"""Faults that are asked for: by a script word or by the `error` knob, in the words of the recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TRACEBACK = [
    '  File "/comfyui/execution.py", line 545, in execute\n',
    '  File "/comfyui/execution.py", line 344, in get_output_data\n',
]

OOM_TIPS = (
    "This error means you ran out of memory on your GPU.\n\n"
    "TIPS: If the workflow worked before you might have accidentally set the batch_size to a large number."
)

RUNTIME_CLASSES = ("error", "oom", "cuda", "missing_model")
VALIDATION_CLASSES = ("invalid", "missing_node", "value_not_in_list")
CLASSES = RUNTIME_CLASSES + VALIDATION_CLASSES


class NodeFault(Exception):
    """A node failed in the way a real one would: `kind` is the dotted exception type that is reported."""

    def __init__(self, kind: str, message: str, *, node_id: str | None = None, node_class: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.node_id = node_id
        self.node_class = node_class


def out_of_memory() -> NodeFault:
    """The recorded out-of-memory fault."""
    return NodeFault("torch.OutOfMemoryError", f"Allocation on device \n{OOM_TIPS}")


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault that a run will meet when it comes to `node_id`, or to its second node if that is None."""

    fault: NodeFault
    node_id: str | None


def second_node(graph: dict[str, Any]) -> str:
    """The graph's second node by id: numbers by value, before other ids; the only node of a single one."""
    ordered = sorted(graph, key=lambda node_id: (not node_id.isdecimal(), int(node_id) if node_id.isdecimal() else 0))
    return ordered[min(1, len(ordered) - 1)]


def planned(kind: str, graph: dict[str, Any]) -> Planned | None:
    """The fault that a class of RUNTIME_CLASSES means for this graph; None for every other word."""
    if kind == "error":
        message = "index 3 is out of bounds for dimension 3 with size 3\n"
        return Planned(NodeFault("IndexError", message, node_id="2", node_class="ImageToMask"), None)
    if kind == "oom":
        return Planned(out_of_memory(), second_node(graph))
    if kind == "cuda":
        message = (
            "CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        )
        return Planned(NodeFault("torch.AcceleratorError", message), second_node(graph))
    if kind == "missing_model":
        return Planned(NodeFault("Exception", "ClipVision model not found.\n"), second_node(graph))
    return None


def refusal(kind: str, graph: dict[str, Any]) -> dict[str, Any]:
    """The 400 body that a class of VALIDATION_CLASSES means."""
    if kind == "missing_node":
        node_id = second_node(graph) if graph else "2"
        error = {
            "type": "missing_node_type",
            "message": "Node 'NoSuchNode' not found. The custom node may not be installed.",
            "details": f"Node ID '#{node_id}'",
            "extra_info": {"node_id": node_id, "class_type": "NoSuchNode", "node_title": "NoSuchNode"},
        }
        return {"error": error, "node_errors": {}}
    if kind == "value_not_in_list":
        node_id, node_class = "1", "CheckpointLoaderSimple"
        reason = {
            "type": "value_not_in_list",
            "message": "Value not in list",
            "details": "ckpt_name: 'missing.safetensors' not in []",
            "extra_info": {
                "input_name": "ckpt_name",
                "input_config": [[], {}],
                "received_value": "missing.safetensors",
            },
        }
    else:
        node_id, node_class = "3", "KSampler"
        reason = {
            "type": "exception_during_inner_validation",
            "message": "Exception when validating inner node",
            "details": "'inputs'",
            "extra_info": {
                "input_name": "model",
                "input_config": ["MODEL", {}],
                "exception_message": "'inputs'",
                "exception_type": "KeyError",
                "traceback": TRACEBACK[:1],
                "linked_node": ["4", 0],
            },
        }
    outputs = [each for each, node in graph.items() if isinstance(node, dict) and "Save" in str(node.get("class_type"))]
    return {
        "error": {
            "type": "prompt_outputs_failed_validation",
            "message": "Prompt outputs failed validation",
            "details": "",
            "extra_info": {},
        },
        "node_errors": {node_id: {"errors": [reason], "dependent_outputs": outputs, "class_type": node_class}},
    }
