"""What people use without a service: a script that uploads, posts, listens, reads the history, fetches the picture."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp


async def upload(http: aiohttp.ClientSession, url: str, photo: bytes) -> str:
    """Put the photo on the server; the name a LoadImage node takes."""
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("image", photo, filename=f"{uuid4().hex}.jpg", content_type="image/jpeg")
    async with http.post(f"{url}/upload/image", data=form) as reply:
        name: str = (await reply.json())["name"]
        return name


async def post(http: aiohttp.ClientSession, url: str, workflow: Mapping[str, Any], client_id: str) -> str:
    """Queue the prompt; its id."""
    async with http.post(f"{url}/prompt", json={"prompt": workflow, "client_id": client_id}) as reply:
        prompt_id: str = (await reply.json())["prompt_id"]
        return prompt_id


async def ended(socket: aiohttp.ClientWebSocketResponse, prompt_id: str) -> None:
    """Listen until ComfyUI says that nothing of this prompt executes any more."""
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.TEXT:
            continue
        event = json.loads(message.data)
        data = event.get("data", {})
        if event["type"] == "executing" and data.get("node") is None and data.get("prompt_id") == prompt_id:
            return


async def fetch(http: aiohttp.ClientSession, url: str, prompt_id: str, folder: Path) -> None:
    """Store every picture of the finished prompt."""
    async with http.get(f"{url}/history/{prompt_id}") as reply:
        entry = (await reply.json())[prompt_id]
    for output in entry["outputs"].values():
        for image in output.get("images", []):
            async with http.get(f"{url}/view", params=image) as reply:
                data = await reply.read()
            await asyncio.to_thread(store, folder / f"{prompt_id}-{image['filename']}", data)


def store(path: Path, data: bytes) -> None:
    """Write a file so that it outlives a crash of the machine."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


async def one_job(
    http: aiohttp.ClientSession, url: str, workflow: dict[str, Any], photo: bytes | None, folder: Path
) -> None:
    """One picture from first byte to stored file."""
    client_id = uuid4().hex
    async with http.ws_connect(f"{url}/ws", params={"clientId": client_id}, max_msg_size=0) as socket:
        if photo is not None:
            name = await upload(http, url, photo)
            for node in workflow.values():
                if node["class_type"] == "LoadImage":
                    node["inputs"]["image"] = name
        prompt_id = await post(http, url, workflow, client_id)
        await ended(socket, prompt_id)
    await fetch(http, url, prompt_id, folder)
