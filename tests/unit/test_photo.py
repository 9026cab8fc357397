"""A photo leaves as nothing but its pixels, upright; what is no photo is refused by name."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib

import pytest
from PIL import Image, ImageChops, ImageCms, ImageStat, PngImagePlugin

from genflow.api.photo import Limits, Photo, clean_photo
from genflow.errors import GenflowError
from tests.support.photos import encoded, picture

LIMITS = Limits(bytes=20 * 2**20, pixels=50_000_000, side=128)


def clean(data: bytes, limits: Limits = LIMITS) -> Photo:
    return clean_photo(io.BytesIO(data), limits)


def opened(photo: Photo) -> Image.Image:
    image = Image.open(io.BytesIO(photo.data))
    image.load()
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (photo.width, photo.height))
    return image


def refusal(data: bytes, limits: Limits = LIMITS) -> GenflowError:
    with pytest.raises(GenflowError) as caught:
        clean(data, limits)
    details = caught.value.details
    assert details is not None
    assert set(details) == {"field", "reason", "limit", "got"}
    assert details["field"] == "photo"
    json.dumps(details)
    assert caught.value.status == (413 if caught.value.code == "payload_too_large" else 422)
    return caught.value


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of a channel, 0…255."""
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "L"),
     ("PNG", "LA"), ("PNG", "1"), ("PNG", "I;16"), ("WEBP", "RGB"), ("WEBP", "RGBA")],
)  # fmt: skip
def test_every_kind_of_photo_leaves_as_the_same_picture(kind: str, mode: str) -> None:
    if mode == "I;16":
        source = Image.linear_gradient("L").convert("I").point(lambda value: value * 256).convert("I;16")
        wanted = Image.linear_gradient("L").convert("RGB")
    else:
        source = picture(mode=mode)
        wanted = source.convert("RGB")
    options = {"quality": 95} if kind != "PNG" else {}
    photo = clean(encoded(source, kind, **options))
    assert difference(opened(photo), wanted) < 3


def test_the_same_photo_always_makes_the_same_bytes() -> None:
    data = encoded(picture())
    assert clean(data).data == clean(data).data


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied(kind: str, orientation: int) -> None:
    upright = picture()
    # What a camera stores so that a viewer, turning it back, shows it upright.
    stored = {
        1: upright,
        2: upright.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: upright.transpose(Image.Transpose.ROTATE_180),
        4: upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: upright.transpose(Image.Transpose.TRANSPOSE),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        7: upright.transpose(Image.Transpose.TRANSVERSE),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = clean(encoded(stored, kind, exif=exif))
    assert difference(opened(photo), upright) < 4


def test_nothing_but_pixels_leaves() -> None:
    exif = Image.Exif()
    exif[0x010E] = "SECRET description"
    exif.get_ifd(0x8825)[1] = "SECRET GPS"
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/">SECRET xmp</x:xmpmeta>'
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    texts = PngImagePlugin.PngInfo()
    texts.add_text("comment", "SECRET text")
    texts.add_itxt("XML:com.adobe.xmp", "SECRET itxt")
    sources = [
        encoded(picture(), "JPEG", exif=exif, comment=b"SECRET comment", xmp=xmp, icc_profile=profile, dpi=(301, 301)),
        encoded(picture(), "JPEG", exif=exif, comment=b"SECRET comment", xmp=xmp, dpi=(301, 301)),
        encoded(picture(), "PNG", exif=exif, pnginfo=texts, icc_profile=profile, dpi=(301, 301)),
        encoded(picture(), "WEBP", exif=exif, xmp=xmp, icc_profile=profile),
    ]
    for data in sources:
        photo = clean(data)
        assert b"SECRET" in data or b"ICCP" in data
        assert b"SECRET" not in photo.data
        assert b"Exif" not in photo.data
        assert set(opened(photo).info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        assert opened(photo).info["jfif_density"] == (1, 1)


def test_colours_mean_what_their_profile_says() -> None:
    swapped = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    grey = Image.new("RGB", (128, 128), (120, 120, 120))
    assert difference(opened(clean(encoded(grey, "PNG", icc_profile=b"garbage"))), grey) < 2
    assert difference(opened(clean(encoded(grey, "PNG", icc_profile=swapped.tobytes()))), grey) < 2
    linear = _linear_profile()
    lighter = opened(clean(encoded(grey, "PNG", icc_profile=linear))).getpixel((64, 64))
    assert isinstance(lighter, tuple)
    assert abs(lighter[0] - 181) <= 2  # linear 120/255 in sRGB


def _linear_profile() -> bytes:
    """The sRGB profile with a straight tone curve instead of its own."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for index in range(struct.unpack_from(">I", data, 128)[0]):
        tag, offset, _ = struct.unpack_from(">4sII", data, 132 + 12 * index)
        if tag in (b"rTRC", b"gTRC", b"bTRC"):
            data[offset : offset + 12] = b"curv\0\0\0\0\0\0\0\0"  # no entries: the identity
    return bytes(data)


def test_what_is_transparent_becomes_white() -> None:
    image = picture(mode="RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size).point(lambda value: 0 if value < 128 else 255))
    photo = opened(clean(encoded(image, "PNG")))
    top, bottom = photo.getpixel((20, 20)), photo.getpixel((20, 140))
    assert isinstance(top, tuple)
    assert isinstance(bottom, tuple)
    assert min(top) > 250
    assert bottom[2] > 200
    assert bottom[0] < 60


HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + b"\x00" * 100


@pytest.mark.parametrize(
    ("data", "came"),
    [
        (HEIC, "a HEIC picture"),
        (HEIC.replace(b"ftypheic", b"ftypmif1"), "a HEIC picture"),
        (HEIC.replace(b"ftypheic", b"ftypavif"), "an AVIF picture"),
        (HEIC.replace(b"ftypheic", b"ftypisom"), "a video (MP4)"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"  <svg width='200' height='200'/>", "an SVG drawing"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
        (b"<?xml version='1.0'?><a/>", "an XML or HTML text"),
        (encoded(picture(), "GIF"), "a GIF picture"),
        (encoded(picture(), "BMP"), "a BMP picture"),
        (encoded(picture(), "TIFF"), "a TIFF picture"),
        (encoded(picture(), "JPEG2000"), "a JPEG 2000 picture"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04....", "a ZIP archive"),
        (b"just a text", "no picture that can be read"),
        (random.Random(1).randbytes(5_000), "no picture that can be read"),
    ],
)
def test_what_is_no_jpeg_png_or_webp_is_named(data: bytes, came: str) -> None:
    error = refusal(data)
    assert error.code == "unsupported_image"
    assert error.details is not None
    assert error.details["got"] == came
    assert came in error.message
    assert all(name in error.message for name in ("JPEG", "PNG", "WebP"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_photo_cut_off_anywhere_is_refused(kind: str) -> None:
    noise = Image.frombytes("RGB", (150, 150), random.Random(2).randbytes(150 * 150 * 3))
    whole = encoded(noise, kind)
    clean(whole)
    # Past the last pixel a PNG has only its end mark and a JPEG its last two bytes.
    for length in [12, 20, 40, *range(100, len(whole) - 40, max(1, len(whole) // 25))]:
        error = refusal(whole[:length])
        assert error.code == "invalid_image", length
        assert error.details is not None
        assert error.details["reason"] in ("truncated", "broken")


# The filter of the module itself: pytest sets its own for every test.
@pytest.mark.filterwarnings("ignore::UserWarning:PIL.TiffImagePlugin")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_photo_is_decoded_or_refused_never_a_crash(kind: str) -> None:
    rng = random.Random(3)
    whole = encoded(picture(), kind, exif=Image.Exif())
    codes = set()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            photo = clean(bytes(data))
        except GenflowError as error:
            codes.add(error.code)
        else:
            opened(photo)
    assert codes <= {"invalid_image", "unsupported_image"}


def test_an_empty_photo_is_refused() -> None:
    error = refusal(b"")
    assert (error.code, error.details) == (
        "invalid_image",
        {"field": "photo", "reason": "empty", "limit": 1, "got": 0},
    )


def test_too_small_too_large_and_too_many_pixels_name_limit_and_what_came() -> None:
    small = refusal(encoded(picture(400, 126)))
    assert small.code == "invalid_image"
    assert small.details == {"field": "photo", "reason": "too_small", "limit": 128, "got": [400, 126]}
    clean(encoded(picture(128, 128)))
    many = refusal(encoded(picture(200, 160)), Limits(bytes=10**6, pixels=31_999, side=1))
    assert many.code == "invalid_image"
    assert many.details == {"field": "photo", "reason": "too_many_pixels", "limit": 31_999, "got": [200, 160]}
    data = encoded(picture())
    large = refusal(data, Limits(bytes=len(data) - 1, pixels=10**6, side=1))
    assert large.code == "payload_too_large"
    assert large.details == {"field": "photo", "reason": "too_large", "limit": len(data) - 1, "got": len(data)}
    clean(data, Limits(bytes=len(data), pixels=32_000, side=160))


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1_000_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [7_072, 9_500, 12_000, 60_000, 2**31 - 1])
def test_a_bomb_is_refused_by_its_header_alone(side: int) -> None:
    error = refusal(png_that_claims(side, side))
    assert error.code == "invalid_image"
    assert error.details is not None
    assert (error.details["reason"], error.details["limit"]) == ("too_many_pixels", 50_000_000)


def test_a_text_bomb_in_a_png_is_refused() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("comment", "x" * 50_000_000, zip=True)
    error = refusal(encoded(picture(), "PNG", pnginfo=texts))
    assert error.code == "invalid_image"
