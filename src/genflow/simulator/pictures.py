"""Pictures that prove what ran: truly computed with Pillow, the same for the same inputs, never of another machine."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import struct
import textwrap
import zlib
from dataclasses import dataclass, field
from typing import Any

from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

MAX_SIDE = 16_384


@dataclass
class Picture:
    """One picture of a batch. Its PNG is made once and kept, so that saving costs no second compression."""

    image: Image.Image
    _png: bytes | None = field(default=None, repr=False)

    def png(self) -> bytes:
        """The picture as PNG without text chunks."""
        if self._png is None:
            buffer = io.BytesIO()
            # Run lengths only: a run's time should be the times that were asked for, not this machine's compression.
            self.image.save(buffer, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
            self._png = buffer.getvalue()
        return self._png

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.image.width * self.image.height


def with_text(png: bytes, texts: dict[str, Any]) -> bytes:
    """The PNG with one text chunk per key, its value as JSON, right behind the header: as SaveImage writes them."""
    header = 8 + 25
    chunks = []
    for key, value in texts.items():
        body = b"tEXt" + key.encode("latin-1", "replace") + b"\0" + json.dumps(value).encode("latin-1", "replace")
        chunks.append(struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)))
    return png[:header] + b"".join(chunks) + png[header:]


def empty(width: int, height: int, color: int) -> Picture:
    """A picture of one colour (0xRRGGBB)."""
    return Picture(Image.new("RGB", (width, height), ((color >> 16) & 255, (color >> 8) & 255, color & 255)))


def load(data: bytes) -> tuple[Picture, Image.Image]:
    """The first frame of a file as RGB, turned as its EXIF says, and its mask (255 where it is transparent).

    Raises OSError or ValueError for what is no picture, SyntaxError for a broken one.
    """
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    image.load()
    alpha = image.getchannel("A") if "A" in image.getbands() else Image.new("L", (64, 64), 255)
    return Picture(image.convert("RGB")), ImageOps.invert(alpha)


def scaled(picture: Picture, method: str, width: int, height: int, crop: str) -> Picture:
    """ImageScale: 0 for one side keeps the proportions; `center` cuts to the new proportions first."""
    image = picture.image
    if width == 0 and height == 0:
        return picture
    width = width or min(MAX_SIDE, max(1, round(image.width * height / image.height)))
    height = height or min(MAX_SIDE, max(1, round(image.height * width / image.width)))
    resampling = {
        "nearest-exact": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "area": Image.Resampling.BOX,
        "bicubic": Image.Resampling.BICUBIC,
        "lanczos": Image.Resampling.LANCZOS,
    }[method]
    if crop == "center":
        return Picture(ImageOps.fit(image, (width, height), resampling))
    return Picture(image.resize((width, height), resampling))


@dataclass(frozen=True)
class Scene:
    """What a sampler was asked to paint."""

    text: str
    seed: int
    width: int
    height: int
    style: tuple[str, ...] = ()
    """Names of the style LoRAs, which shift the colours."""
    steps: int = 20
    strength: float = 1.0


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _numbers(scene: Scene, index: int) -> bytes:
    told = f"{scene.text}\0{scene.seed}\0{'|'.join(scene.style)}\0{scene.strength}\0{index}"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()


_NAMED = {
    "red": (214, 60, 52), "blue": (56, 104, 205), "green": (62, 148, 84), "yellow": (226, 186, 60),
    "purple": (132, 74, 168), "pink": (226, 120, 158), "orange": (226, 128, 48), "gold": (208, 166, 70),
    "black": (60, 60, 66), "white": (226, 226, 220), "brown": (134, 96, 62), "teal": (48, 142, 142),
}  # fmt: skip


def _colour(scene: Scene, numbers: bytes) -> tuple[int, int, int]:
    for word in scene.text.lower().replace(",", " ").split():
        if word in _NAMED:
            return _NAMED[word]
    return (64 + numbers[0] % 160, 64 + numbers[1] % 160, 64 + numbers[2] % 160)


def paint(scene: Scene, face: Picture | None, index: int) -> Picture:
    """Paint picture `index` of a batch: the face in the prompt's colours, SIMULATED above, the prompt below."""
    numbers = _numbers(scene, index)
    colour = _colour(scene, numbers)
    dark = (colour[0] // 4, colour[1] // 4, colour[2] // 4)
    light = (160 + colour[0] * 95 // 255, 160 + colour[1] * 95 // 255, 160 + colour[2] * 95 // 255)
    size = (scene.width, scene.height)
    if face is None:
        canvas = _abstract(size, numbers, dark, light)
    else:
        canvas = _portrait(face.image, size, numbers, colour, dark, light)
    return Picture(_labelled(canvas, scene, colour, index))


def _portrait(
    face: Image.Image,
    size: tuple[int, int],
    numbers: bytes,
    colour: tuple[int, int, int],
    dark: tuple[int, int, int],
    light: tuple[int, int, int],
) -> Image.Image:
    # Painted at half size and enlarged: soft like a brush, and cheap.
    small = (max(1, size[0] // 2), max(1, size[1] // 2))
    photo = ImageOps.fit(face, small, Image.Resampling.BILINEAR, centering=(0.5, 0.35))
    soft = photo.filter(ImageFilter.GaussianBlur(1 + numbers[3] % 3))
    flat = ImageOps.posterize(soft, 3 + numbers[4] % 3)
    toned = ImageOps.colorize(ImageOps.autocontrast(photo.convert("L")), dark, light, mid=colour)
    painted = Image.blend(flat, toned, 0.35 + (numbers[5] % 20) / 100)
    lines = soft.convert("L").filter(ImageFilter.FIND_EDGES).point(lambda level: min(150, max(0, level * 4 - 60)))
    painted.paste(dark, mask=lines)
    return painted.resize(size, Image.Resampling.BICUBIC)


def _abstract(
    size: tuple[int, int], numbers: bytes, dark: tuple[int, int, int], light: tuple[int, int, int]
) -> Image.Image:
    grid = Image.frombytes("L", (4, 4), numbers[8:24]).resize(size, Image.Resampling.BICUBIC)
    return ImageOps.colorize(grid, dark, light)


def _labelled(canvas: Image.Image, scene: Scene, colour: tuple[int, int, int], index: int) -> Image.Image:
    width, height = canvas.size
    draw = ImageDraw.Draw(canvas, "RGBA")
    band = max(8, height // 11)
    draw.rectangle((0, 0, width, band), fill=(12, 12, 16, 215))
    word = "SIMULATED"
    font = _font(_fitting(word, width - 8, int(band * 0.8)))
    box = draw.textbbox((0, 0), word, font=font)
    place = ((width - box[2] + box[0]) / 2 - box[0], (band - box[3] + box[1]) / 2 - box[1])
    draw.text(place, word, font=font, fill=(255, 255, 255, 255))
    if height < 96 or width < 96:
        return canvas
    small = max(10, height // 36)
    shown = scene.text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    lines = textwrap.wrap(shown, max(8, int(width / (small * 0.56))))[:3]
    lines.append(f"seed {scene.seed}" + (f" · {index + 1}" if index else ""))
    top = height - int(small * 1.35 * len(lines)) - small // 2
    draw.rectangle((0, top - small // 3, width, height), fill=(12, 12, 16, 190))
    for number, line in enumerate(lines):
        draw.text((small // 2, top + number * small * 1.35), line, font=_font(small), fill=(240, 240, 235, 255))
    draw.rectangle((0, 0, width - 1, height - 1), outline=(*colour, 255), width=max(2, width // 100))
    return canvas


@functools.lru_cache(maxsize=64)
def _fitting(word: str, width: int, wanted: int) -> int:
    size = max(6, wanted)
    while size > 6 and _font(size).getlength(word) > width:
        size -= 1
    return size


def preview_jpeg(picture: Picture, share: float) -> bytes:
    """A step's preview: a small JPEG that clears up as the share of finished steps grows."""
    image = picture.image.copy()
    image.thumbnail((512, 512))
    if share < 1:
        image = image.filter(ImageFilter.GaussianBlur((1 - share) * 12))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
