"""Small pictures of large ones, made when they are asked for."""

from __future__ import annotations

import io

from PIL import Image

from genflow.api import photo
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

    Read as a photo is: upright, on white where it is transparent, by the same few readers. Blocks while it decodes,
    which takes up to sixteen bytes of memory a pixel: run it in a thread, few at a time.
    Raises GenflowError `unsupported_image` for what is no picture, is broken, or has more than `pixels` pixels.
    """
    try:
        image = photo.decoded(io.BytesIO(data), photo.Limits(SOURCE_BYTES, pixels, side=1), at_least=2 * width)
    except GenflowError as error:
        raise unsupported(f"it {error.message.partition(': ')[2]}") from None
    if image.width > width:
        height = max(1, round(image.height * width / image.width))
        image = image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)
    out = io.BytesIO()
    image.save(out, kind.upper(), quality=_QUALITY)
    return out.getvalue()
