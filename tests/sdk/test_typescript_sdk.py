"""The official TypeScript SDK, unchanged, drives a fleet: only `COMFY_BASE_URL` says where."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image

from tests.sdk.clients import TYPESCRIPT, node, said_by
from tests.support.service import Service


async def test_it_uploads_streams_downloads_and_understands_refusals(genflow: Service, tmp_path: Path) -> None:
    photo = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(photo, "PNG")
    (tmp_path / "photo.png").write_bytes(photo.getvalue())
    said = await said_by(node(), TYPESCRIPT / "drive.ts", tmp_path / "photo.png", env={"COMFY_BASE_URL": genflow.url})
    assert json.loads(said) == {
        "status": "succeeded",
        "first": "statusChange",
        "last": "statusChange",
        "outputEvents": 1,
        "sizeIsTrue": True,
        "again": "succeeded",
        "backIsPng": True,
        "format": "api",
        "unknown": "NotFound",
        "invalid": "InvalidWorkflow",
        "reused": "IdempotencyKeyReuse",
    }
