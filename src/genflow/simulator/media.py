"""Bytes of files that are no PNG: animations are real, the rest are stand-ins with the right beginning.

A stand-in holds its frames as JPEG, or nothing, in a container that names its type; it says `simulated`, and no player
plays it.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

from genflow.simulator.pictures import Picture

ANIMATIONS = {"gif": "GIF", "webp": "WEBP", "png": "PNG"}


def animation(kind: str, frames: tuple[Picture, ...], fps: float) -> bytes:
    """An animated picture: `kind` is `gif`, `webp` or `png`."""
    first, *others = [picture.image for picture in frames]
    buffer = io.BytesIO()
    first.save(buffer, ANIMATIONS[kind], save_all=True, append_images=others, duration=int(1000 / fps), loop=0)
    return buffer.getvalue()


def _jpegs(frames: tuple[Picture, ...]) -> bytes:
    buffer = io.BytesIO()
    for picture in frames:
        picture.image.save(buffer, "JPEG", quality=70)
    return buffer.getvalue()


def _told(told: dict[str, Any]) -> bytes:
    return json.dumps({"simulated": True} | told).encode()


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + kind + body


def mp4(frames: tuple[Picture, ...], told: dict[str, Any]) -> bytes:
    """A stand-in for a video: boxes of an MP4 with JPEG frames and, in a free box, what is told of it."""
    kind = _box(b"ftyp", b"isom" + struct.pack(">I", 512) + b"isomiso2avc1mp41")
    return kind + _box(b"free", _told(told)) + _box(b"mdat", _jpegs(frames))


def mp4_padding(size: int) -> bytes:
    """The head of a free box that takes `size` bytes, head included: what follows it is read by nobody."""
    return struct.pack(">I", 1) + b"free" + struct.pack(">Q", size)


def webm(frames: tuple[Picture, ...], told: dict[str, Any]) -> bytes:
    """A stand-in for a WebM: its EBML head, then elements that readers pass over."""
    head = b"\x1a\x45\xdf\xa3\x87\x42\x82\x84webm"
    return head + b"".join(b"\xec\x08" + struct.pack(">I", len(each)) + each for each in (_told(told), _jpegs(frames)))


def flac(rate: int, channels: int) -> bytes:
    """A FLAC file that says its rate and channels and holds no sound."""
    packed = rate << 44 | (channels - 1) << 41 | 15 << 36
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info


def mp3(told: dict[str, Any]) -> bytes:
    """An MP3's tag, and no sound."""
    text = b"\x03" + _told(told)
    frame = b"COMM" + struct.pack(">I", len(text) + 3) + b"\0\0" + b"\x03eng" + text[1:]
    size = len(frame)
    return b"ID3\x04\0\0" + bytes([size >> 21 & 127, size >> 14 & 127, size >> 7 & 127, size & 127]) + frame


def opus(told: dict[str, Any]) -> bytes:
    """The first page of an Ogg stream, and no sound."""
    return b"OggS\0\x02" + bytes(20) + b"\x01\x13OpusHead\x01\x02" + bytes(9) + _told(told)


def latent(width: int, height: int, count: int, told: dict[str, Any]) -> bytes:
    """A safetensors file with a tensor of zeros of the right shape, as SaveLatent writes it."""
    shape = [count, 4, height // 8, width // 8]
    size = 4 * shape[0] * shape[1] * shape[2] * shape[3]
    tensors = {
        "__metadata__": {key: json.dumps(value) for key, value in told.items()},
        "latent_format_version_0": {"dtype": "F32", "shape": [0], "data_offsets": [size, size]},
        "latent_tensor": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]},
    }
    head = json.dumps(tensors).encode()
    return struct.pack("<Q", len(head)) + head + bytes(size)


def glb(told: dict[str, Any]) -> bytes:
    """A binary glTF of one triangle."""
    points = struct.pack("<9f", 0, 0, 0, 1, 0, 0, 0, 1, 0)
    scene = {
        "asset": {"version": "2.0", "extras": {"simulated": True} | told},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3", "min": [0, 0, 0], "max": [1, 1, 0]}
        ],
        "bufferViews": [{"buffer": 0, "byteLength": len(points)}],
        "buffers": [{"byteLength": len(points)}],
    }
    text = json.dumps(scene).encode()
    text += b" " * (-len(text) % 4)
    length = 12 + 8 + len(text) + 8 + len(points)
    head = b"glTF" + struct.pack("<II", 2, length)
    return head + struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(points), b"BIN\0") + points
