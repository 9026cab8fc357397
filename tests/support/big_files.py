"""A file too large to be held, up through the API and down again, in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from blake3 import blake3

from tests.support.service import Service

PIECE = 1_000_000


async def pieces(size: int) -> AsyncIterator[bytes]:
    """So many bytes, no two pieces alike."""
    sent = 0
    while sent < size:
        piece = sent.to_bytes(8, "big") * (PIECE // 8)
        yield piece[: size - sent]
        sent += PIECE


async def up(genflow: Service, size: int) -> dict[str, Any]:
    """Upload such a file; its asset."""
    form = aiohttp.FormData({"content_type": "application/octet-stream", "file_path": "big.bin"})
    form.add_field("file", pieces(size), filename="big.bin")
    status, asset = await genflow.request("POST", "/api/v2/assets", data=form, timeout=aiohttp.ClientTimeout(1_200))
    assert status == 201, asset
    made: dict[str, Any] = asset
    return made


async def down(genflow: Service, url: str) -> tuple[int, str]:
    """Download what is there; its size and hash."""
    size, digest = 0, blake3()
    async with genflow.http.get(url, timeout=aiohttp.ClientTimeout(1_200)) as reply:
        assert reply.status == 200
        async for piece in reply.content.iter_chunked(PIECE):
            size += len(piece)
            digest.update(piece)
    return size, f"blake3:{digest.hexdigest()}"
