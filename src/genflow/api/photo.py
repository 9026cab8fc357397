"""A face photo from outside becomes a plain JPEG, or is refused by name.

A photo is decoded whole, here, under a budget of pixels, because ComfyUI takes any bytes under an image's name and
fails only in the middle of the run (docs/design/comfyui.md, section 6). What leaves holds nothing but pixels: turned
upright, in sRGB, without EXIF, comments, profiles or thumbnails. The same photo always makes the same bytes.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
from dataclasses import dataclass
from typing import BinaryIO

from PIL import Image, ImageCms, UnidentifiedImageError

from genflow.errors import GenflowError

FORMATS = ("JPEG", "PNG", "WEBP")
ACCEPTED = "JPEG, PNG and WebP"
CONTENT_TYPE = "image/jpeg"
JPEG_QUALITY = 95

CLEANED_LIMIT_BYTES = 90 * 1024 * 1024
"""Largest photo that leaves, in bytes: ComfyUI refuses uploads over 100 MB by default."""

_HEAD_BYTES = 512

# A picture that Pillow calls a bomb is refused, whoever opens it: never a line in a log.
warnings.simplefilter("error", Image.DecompressionBombWarning)
# Broken EXIF is common and says nothing about the picture.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a photo may be: `bytes` as sent, `pixels` decoded, and its shortest side in pixels."""

    bytes: int
    pixels: int
    side: int


@dataclass(frozen=True, slots=True)
class Photo:
    """A cleaned photo: a baseline JPEG and its size in pixels."""

    data: bytes
    width: int
    height: int


def _refused(
    code: str, reason: str, message: str, *, limit: object, got: object, status: int = 422, field: str = "photo"
) -> GenflowError:
    details = {"field": field, "reason": reason, "limit": limit, "got": got}
    return GenflowError(code, f"{field}: {message}", status=status, details=details)


def too_large(limit_bytes: int, got_bytes: int | None) -> GenflowError:
    """The refusal of a photo of more than `limit_bytes` bytes; `got_bytes` None = it was not read to its end."""
    message = f"is larger than {limit_bytes} bytes ({limit_bytes / 2**20:g} MB); send a smaller one"
    return _refused("payload_too_large", "too_large", message, limit=limit_bytes, got=got_bytes, status=413)


def unsupported(got: str, field: str = "photo") -> GenflowError:
    """The refusal of something that is no JPEG, PNG or WebP; `got` says what it is."""
    return _refused(
        "unsupported_image",
        "unsupported_format",
        f"is {got}; accepted are {ACCEPTED}",
        limit=["image/jpeg", "image/png", "image/webp"],
        got=got,
        field=field,
    )


def decoded(file: BinaryIO, limits: Limits, *, at_least: int | None = None) -> Image.Image:
    """Read and check a picture and decode it whole: upright, RGB in sRGB; the first frame, where it moves.

    With `at_least` a JPEG may come out smaller, its sides still that many pixels, for a fraction of the work.
    Blocks for up to seconds and takes up to sixteen bytes of memory a pixel: run it in a thread, few at a time.
    Raises GenflowError: `payload_too_large` (413), `unsupported_image`, or `invalid_image` for one that is empty,
    broken, truncated, too small or of too many pixels; its details hold field, reason, limit and what came.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size == 0:
        raise _refused("invalid_image", "empty", f"is empty; accepted are {ACCEPTED}", limit=1, got=0)
    if size > limits.bytes:
        raise too_large(limits.bytes, size)
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    try:
        with Image.open(file, formats=FORMATS) as image:
            _check_size(image, limits)
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            return _pixels(image)
    except UnidentifiedImageError as error:
        if head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (head[:4], head[8:12]) == (b"RIFF", b"WEBP"):
            raise _broken(error) from None
        raise unsupported(_what_came(head)) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(limits, None) from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error) as error:
        # Pillow's readers raise all of these for broken files, and nothing of its own.
        raise _broken(error) from None


def clean_photo(file: BinaryIO, limits: Limits) -> Photo:
    """Read, check and re-encode a photo. It costs and raises what `decoded` does."""
    pixels = decoded(file, limits)
    encoded = io.BytesIO()
    pixels.save(encoded, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    if encoded.tell() > CLEANED_LIMIT_BYTES:
        message = f"takes {encoded.tell()} bytes as a JPEG, more than {CLEANED_LIMIT_BYTES}; send a smaller one"
        raise _refused("invalid_image", "too_large", message, limit=CLEANED_LIMIT_BYTES, got=encoded.tell())
    return Photo(encoded.getvalue(), pixels.width, pixels.height)


def _check_size(image: Image.Image, limits: Limits) -> None:
    if image.width * image.height > limits.pixels:
        raise _too_many_pixels(limits, (image.width, image.height))
    if min(image.size) < limits.side:
        message = f"is {image.width} × {image.height} pixels; each side must have at least {limits.side}"
        raise _refused("invalid_image", "too_small", message, limit=limits.side, got=list(image.size))


def _too_many_pixels(limits: Limits, size: tuple[int, int] | None) -> GenflowError:
    came = f"has {size[0]} × {size[1]} pixels" if size else "has far too many pixels"
    message = f"{came}; at most {limits.pixels} in all ({limits.pixels / 1e6:g} MP) are accepted"
    return _refused("invalid_image", "too_many_pixels", message, limit=limits.pixels, got=list(size) if size else None)


def _broken(error: Exception) -> GenflowError:
    reason = "truncated" if "truncated" in str(error).lower() else "broken"
    message = f"is {reason}: it can't be decoded to its end; send the whole file"
    return _refused("invalid_image", reason, message, limit=None, got=f"a {reason} picture")


def _pixels(image: Image.Image) -> Image.Image:
    """The picture itself: decoded whole, upright, on white where it was transparent, RGB in sRGB."""
    image.load()
    turn = _UPRIGHT.get(_orientation(image))
    profile = image.info.get("icc_profile")
    plain = _in_srgb(_in_eight_bits(image), profile)
    if turn is not None:
        plain = plain.transpose(turn)
    # Pillow writes what it finds here (comments, resolution) into the file.
    plain.info.clear()
    return plain


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # EXIF is free-form; a broken one is no reason to refuse a photo that shows
        return 1
    return value if isinstance(value, int) else 1


def _in_eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        return image.convert("I").point(lambda value: value / 256).convert("L")
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("P", "LA", "PA", "La", "RGBa"):
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    return image


def _in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """RGB, with the colours that the embedded profile means; a profile that can't be read is left out."""
    alpha = image.convert("RGBA").getchannel("A") if image.has_transparency_data else None
    colours = image.convert("RGB") if alpha is not None else image
    converted = None
    if profile:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            converted = ImageCms.profileToProfile(colours, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            converted = None
    plain = converted or (colours if colours.mode == "RGB" else colours.convert("RGB"))
    if alpha is None:
        return plain
    white = Image.new("RGB", plain.size, "white")
    white.paste(plain, mask=alpha)
    return white


def _what_came(head: bytes) -> str:
    """What a file seems to be, from its first bytes, in words for the client."""
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in (b"avif", b"avis"):
            return "an AVIF picture"
        if brand in (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"):
            return "a HEIC picture"
        return "a video (MP4)"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in text:
        return "an SVG drawing"
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page"
    if text.startswith(b"<"):
        return "an XML or HTML text"
    return "no picture that can be read"


_MAGIC = (
    (b"GIF8", "a GIF picture"),
    (b"BM", "a BMP picture"),
    (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"),
    (b"%PDF", "a PDF document"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"\x00\x00\x00\x0cjP", "a JPEG 2000 picture"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"8BPS", "a Photoshop file"),
    (b"RIFF", "a RIFF file (sound or video)"),
)
