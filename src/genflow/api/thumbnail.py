"""Small pictures of large ones, made when they are asked for."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

from genflow.errors import GenflowError

FORMATS = {"webp": "image/webp", "jpeg": "image/jpeg", "png": "image/png"}
WIDTHS = range(16, 2049)
SOURCE_BYTES = 64 * 1024 * 1024
"""Largest picture, in bytes, of which a small one is made: it is read into memory."""

_QUALITY = 80


def unsupported(why: str) -> GenflowError:
    """The refusal of something that no thumbnail can be made of."""
    return GenflowError("unsupported_image", f"No thumbnail can be made: {why}.", details={"field": "w", "got": why})


def thumbnail(data: bytes, width: int, kind: str, pixels: int) -> bytes:
    """The picture in `data`, `width` pixels wide at most and as high as that makes it, as a file of `kind`.

    Blocks while it decodes, which takes up to sixteen bytes of memory a pixel: run it in a thread, few at a time.
    Raises GenflowError `unsupported_image` for what is no picture, is broken, or has more than `pixels` pixels.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > pixels:
                raise unsupported(f"it has {image.width} × {image.height} pixels, and at most {pixels} are decoded")
            image.draft("RGB", (width, width))
            image.thumbnail((width, 16 * width))
            small = image if kind != "jpeg" and image.mode in ("RGB", "RGBA") else image.convert("RGB")
            out = io.BytesIO()
            small.save(out, kind.upper(), quality=_QUALITY)
    except (
        UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning, OSError, SyntaxError,
        ValueError, EOFError, IndexError, KeyError, TypeError,
    ):  # fmt: skip
        raise unsupported("it is no picture that can be read") from None
    return out.getvalue()
