"""The nodes a simulated server has, and the model files it claims to have.

Their `/object_info` is the recorded one, or, where a node was not recorded, what its own source declares.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FILE_INPUTS: dict[tuple[str, str], str] = {
    ("CheckpointLoaderSimple", "ckpt_name"): "checkpoints",
    ("LoraLoader", "lora_name"): "loras",
    ("LoraLoaderModelOnly", "lora_name"): "loras",
    ("IPAdapterModelLoader", "ipadapter_file"): "ipadapter",
    ("CLIPVisionLoader", "clip_name"): "clip_vision",
}
"""Which inputs are names of model files, and in which folder those lie."""

FOLDERS = (
    "checkpoints", "configs", "loras", "vae", "text_encoders", "diffusion_models", "clip_vision", "style_models",
    "embeddings", "diffusers", "vae_approx", "controlnet", "gligen", "upscale_models", "latent_upscale_models",
    "custom_nodes", "datasets", "hypernetworks", "photomaker", "classifiers", "model_patches", "audio_encoders",
    "background_removal", "frame_interpolation", "geometry_estimation", "optical_flow", "detection", "ipadapter",
)  # fmt: skip
"""The folders of `/models`, as recorded."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input. `options` is the list of a combo, None for other kinds."""

    name: str
    kind: Any
    config: dict[str, Any]
    options: tuple[str, ...] | None
    required: bool

    def shown(self, options: list[str] | None) -> list[Any]:
        """The declaration as error messages show it (`input_config`)."""
        return [options if isinstance(self.kind, list) else self.kind, self.config]


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node class as validation needs it."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    output_node: bool


@cache
def _known() -> dict[str, Any]:
    data = files("genflow.simulator").joinpath("data")
    recorded: dict[str, Any] = json.loads(data.joinpath("object_info.json").read_text("utf-8"))
    declared: dict[str, Any] = json.loads(data.joinpath("output_nodes.json").read_text("utf-8"))["nodes"]
    return recorded | declared


def _input_spec(name: str, declared: list[Any], required: bool) -> InputSpec:
    kind = declared[0]
    config = declared[1] if len(declared) > 1 else {}
    options = None
    if isinstance(kind, list):
        options = tuple(kind)
    elif kind == "COMBO":
        options = tuple(config.get("options", ()))
    return InputSpec(name, kind, config, options, required)


@cache
def spec_of(class_type: str) -> NodeSpec | None:
    """The declaration of a node class; None for a class that the server does not have."""
    info = _known().get(class_type)
    if info is None:
        return None
    declared = info["input"]
    inputs = [_input_spec(name, spec, True) for name, spec in declared.get("required", {}).items()]
    inputs += [_input_spec(name, spec, False) for name, spec in declared.get("optional", {}).items()]
    return NodeSpec(class_type, tuple(inputs), tuple(info["output"]), info["output_node"])


class Catalog:
    """`/object_info` of one server: what was recorded, filled with this server's own file lists."""

    def __init__(self, models: dict[str, tuple[str, ...]]) -> None:
        self.models: dict[str, list[str]] = {folder: list(names) for folder, names in models.items()}
        self.lacks: frozenset[str] = frozenset()
        """Node classes that this server does not have."""

    def spec_of(self, class_type: str) -> NodeSpec | None:
        """The declaration of a node class that this server has."""
        return None if class_type in self.lacks else spec_of(class_type)

    def options(self, class_type: str, spec: InputSpec) -> list[str] | None:
        """The choices of a combo input on this server; None for an input that is no combo."""
        folder = FILE_INPUTS.get((class_type, spec.name))
        if folder is not None:
            return list(self.models.get(folder, []))
        return None if spec.options is None else list(spec.options)

    def object_info(self, class_type: str, input_files: list[str]) -> dict[str, Any]:
        """`/object_info/NODE`: an unknown node gives an empty object, as on a real server."""
        info = _known().get(class_type)
        if info is None or class_type in self.lacks:
            return {}
        filled = copy.deepcopy(info)
        required = filled["input"].get("required", {})
        for (owner, name), folder in FILE_INPUTS.items():
            if owner == class_type:
                required[name][0] = list(self.models.get(folder, []))
        if class_type == "LoadImage":
            required["image"][0] = input_files
        return {class_type: filled}

    def all_object_info(self, input_files: list[str]) -> dict[str, Any]:
        """`/object_info` whole."""
        whole: dict[str, Any] = {}
        for class_type in _known():
            whole |= self.object_info(class_type, input_files)
        return whole
