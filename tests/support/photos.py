"""A small photo for tests that only need one."""

from __future__ import annotations

import io

from PIL import Image


def photo(side: int = 256, color: tuple[int, int, int] = (200, 120, 90)) -> bytes:
    """A square JPEG of one color."""
    sink = io.BytesIO()
    Image.new("RGB", (side, side), color).save(sink, "JPEG")
    return sink.getvalue()
