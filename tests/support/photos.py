"""Photos for tests, made on the spot."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image


def photo(side: int = 256, color: tuple[int, int, int] = (200, 120, 90)) -> bytes:
    """A square JPEG of one color."""
    return encoded(Image.new("RGB", (side, side), color))


def picture(width: int = 200, height: int = 160, mode: str = "RGB") -> Image.Image:
    """Four quarters of their own colour: red, green / blue, yellow."""
    image = Image.new("RGB", (width, height))
    for x, y, colour in ((0, 0, "red"), (1, 0, "lime"), (0, 1, "blue"), (1, 1, "yellow")):
        image.paste(Image.new("RGB", (width // 2, height // 2), colour), (x * width // 2, y * height // 2))
    return image.convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    """The image as a file."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
