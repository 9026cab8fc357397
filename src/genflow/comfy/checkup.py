"""Looks at servers from outside, without any service: are they up, and what do they lack for a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from genflow.comfy.access import access, open_session
from genflow.comfy.client import ComfyServer
from genflow.comfy.errors import ComfyError
from genflow.comfy.messages import Device
from genflow.errors import GenflowError
from genflow.needs import Capabilities, choices_of_node, named_choices
from genflow.settings import ServerSettings
from genflow.validation import FleetNodes, check_workflow

FOLDERS = {
    "ckpt_name": "models/checkpoints",
    "lora_name": "models/loras",
    "ipadapter_file": "models/ipadapter",
    "vae_name": "models/vae",
    "control_net_name": "models/controlnet",
    "unet_name": "models/diffusion_models",
    "style_model_name": "models/style_models",
    "upscale_model_name": "models/upscale_models",
}
"""The folder under ComfyUI's own where the files of an input are looked for (folder_paths.py of ComfyUI)."""
_OF_CLASS = {"CLIPVisionLoader": "models/clip_vision", "CLIPLoader": "models/text_encoders"}
_PACKAGES = {"IPAdapter": "ComfyUI_IPAdapter_plus", "CLIPVision": "ComfyUI", "VHS_": "ComfyUI-VideoHelperSuite"}


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at one server gave: its device and depth, or why it could not be had."""

    name: str
    healthy: bool
    device: Device | None = None
    depth: int = 0
    why: str = ""


@asynccontextmanager
async def reached(servers: Mapping[str, ServerSettings]) -> AsyncIterator[list[ComfyServer]]:
    """Clients of these servers, by their names. GenflowError `ca_file_unusable`."""
    async with open_session() as session:
        yield [
            ComfyServer(name, each.url, session, access(each.sent_headers(), each.ca_file))
            for name, each in servers.items()
        ]


async def look_at(server: ComfyServer, *, within_s: float) -> Look:
    """Ask one server for its device and its depth; changes nothing there."""
    try:
        async with asyncio.timeout(within_s):
            device, depth = await server.device(), await server.depth()
    except (ComfyError, TimeoutError) as error:
        return Look(server.name, healthy=False, why=type(_root(error)).__name__)
    return Look(server.name, healthy=True, device=device, depth=depth)


def _root(error: BaseException) -> BaseException:
    """What really happened behind what was made of it."""
    while True:
        behind = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error.__cause__
        if behind is None:
            return error
        error = behind


def look_line(look: Look) -> str:
    """One server's line, for a person and for a readiness probe's log."""
    if not look.healthy:
        return f"{look.name}: unreachable ({look.why})"
    device = look.device
    on = "" if device is None else f", device {device.name}"
    if device is not None and device.vram_free is not None:
        on += f", {device.vram_free // 2**20} MiB free"
    return f"{look.name}: healthy{on}, {look.depth} prompt(s) in its queue"


_LOADED_BY_NAME = {
    "IPAdapterUnifiedLoader": (("clip_vision", ""), ("ipadapter", "")),
    "IPAdapterUnifiedLoaderFaceID": (("clip_vision", ""), ("ipadapter", "faceid"), ("loras", "faceid")),
}
"""Nodes that look for their files only when they run: the folders, and what the name of a file there has to hold."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a workflow needs and a server has not; `where` is the folder or the package that it belongs in."""

    kind: str
    name: str
    where: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of workflows against one server gave: what is lacking there, and what is wrong with them."""

    lacks: list[Lack]
    faults: list[str]

    @property
    def sound(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.lacks and not self.faults


async def check_graphs(client: ComfyServer, graphs: Sequence[Mapping[str, Any]]) -> Checked:
    """Everything that stands between these workflows and a run on this server, each thing once. Raises ComfyError."""
    object_info = await client.object_info()
    found = [lack for graph in graphs for lack in lacks(graph, object_info)]
    if any(lack.kind == "value" for lack in found):
        found = await _placed(client, found, object_info)
    for graph in graphs:
        found += await _not_loaded(client, graph)
    faults = [fault for graph in graphs for fault in wrong(graph, object_info)]
    return Checked(list(dict.fromkeys(found)), list(dict.fromkeys(faults)))


def wrong(graph: Mapping[str, Any], object_info: Mapping[str, Any]) -> list[str]:
    """What is wrong with a workflow beside what the server lacks: links, missing inputs, values out of range.

    Where a node class is lacking nothing is told: what it takes and gives is not known.
    """
    try:
        check_workflow(graph, FleetNodes((object_info,), (Capabilities(object_info),)))
    except GenflowError as error:
        details = error.details or {}
        if details.get("reason") == "no_output_node":
            return [error.message]
        return [
            f"node {node} ({each['class_type']}): {each['message']}"
            for node, errors in details.get("node_errors", {}).items()
            for each in errors
            if not _told_as_lacking(graph[node], each)
        ]
    return []


def _told_as_lacking(content: Mapping[str, Any], fault: Mapping[str, str]) -> bool:
    """Whether `lacks` names the same: a class, or a text that is none of the choices."""
    if fault["reason"] == "value_not_in_list":
        return isinstance(content["inputs"].get(fault["field"]), str)
    return fault["reason"] == "unknown_class"


async def _placed(client: ComfyServer, found: list[Lack], object_info: Mapping[str, Any]) -> list[Lack]:
    """The same with the folder of each choice that is a file: the one folder whose files are that input's choices."""
    files = {folder: await client.model_files(folder) for folder in await client.model_folders()}
    placed = []
    for lack in found:
        field, _, node = lack.where.rpartition(" of ")
        choices = dict(choices_of_node(object_info.get(node))).get(field) if lack.kind == "value" else None
        folders = [folder for folder, names in files.items() if names and names == choices]
        placed.append(Lack("file", lack.name, f"models/{folders[0]}") if len(folders) == 1 else lack)
    return placed


async def _not_loaded(client: ComfyServer, graph: Mapping[str, Any]) -> list[Lack]:
    """The files that a node would look for in vain once it runs."""
    found = []
    for content in graph.values():
        for folder, word in _LOADED_BY_NAME.get(content["class_type"], ()):
            names = await client.model_files(folder)
            if not any(word in name.lower() for name in names):
                what = f"*{word}*" if word else f"for {content['class_type']}"
                found.append(Lack("file", what, f"models/{folder}"))
    return found


def lacks(graph: Mapping[str, Any], object_info: Mapping[str, Any]) -> list[Lack]:
    """What of this workflow the server with this description has not. Each thing once, in the workflow's order."""
    server = Capabilities(object_info)
    found: dict[Lack, None] = {}
    for content in graph.values():
        node = content["class_type"]
        if not server.has(node):
            found[Lack("node", node, _package(node))] = None
            continue
        for field, value in named_choices(content["inputs"], object_info[node]):
            if not server.offers(node, field, value):
                folder = _OF_CLASS.get(node) or FOLDERS.get(field)
                found[Lack("file" if folder else "value", value, folder or f"{field} of {node}")] = None
    return list(found)


def _package(node: str) -> str:
    return next((package for start, package in _PACKAGES.items() if node.startswith(start)), "a custom node")
