"""Looks at servers from outside, without any service: are they up, and what do they lack for a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from genflow.comfy.access import access, open_session
from genflow.comfy.client import ComfyServer
from genflow.comfy.errors import ComfyError
from genflow.comfy.messages import Device
from genflow.needs import Capabilities, named_choices
from genflow.settings import ServerSettings

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


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a workflow needs and a server has not; `where` is the folder or the package that it belongs in."""

    kind: str
    name: str
    where: str


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
