"""File endings, media types, and the Comfy API v2's kinds of a file. Pure.

ComfyUI goes by endings: its nodes for sound, video and latents take or leave a file by its name.
"""

from __future__ import annotations

import mimetypes
import re
from pathlib import PurePosixPath

CONTENT_TYPES = {
    ".avif": "image/avif", ".bmp": "image/bmp", ".exr": "image/x-exr", ".gif": "image/gif", ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg", ".png": "image/png", ".svg": "image/svg+xml", ".tif": "image/tiff", ".tiff": "image/tiff",
    ".webp": "image/webp",
    ".avi": "video/x-msvideo", ".mkv": "video/x-matroska", ".mov": "video/quicktime", ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".aac": "audio/aac", ".flac": "audio/flac", ".m4a": "audio/mp4", ".mp3": "audio/mpeg", ".ogg": "audio/ogg",
    ".opus": "audio/ogg", ".wav": "audio/wav",
    ".fbx": "application/octet-stream", ".glb": "model/gltf-binary", ".gltf": "model/gltf+json", ".obj": "model/obj",
    ".ply": "application/octet-stream", ".stl": "model/stl", ".usdz": "model/vnd.usdz+zip",
    ".csv": "text/csv; charset=utf-8", ".json": "application/json", ".md": "text/markdown; charset=utf-8",
    ".srt": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
"""What ComfyUI's nodes write and read, by ending: Python's own list knows few, and differs from machine to machine."""

_USUAL = {"image/jpeg": ".jpg", "image/tiff": ".tiff", "audio/ogg": ".ogg", "text/plain": ".txt"}
"""The ending of a media type that has more than one."""
_ENDING = re.compile(r"\.[a-z0-9]{1,12}")


def content_type_of(name: str) -> str:
    """The media type of a file that a node wrote, by its name's ending."""
    ending = PurePosixPath(name).suffix.lower()
    return CONTENT_TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def output_type(name: str, content_type: str) -> str:
    """The Comfy API v2's kind of an output."""
    if name.lower().endswith(".latent"):
        return "latent"
    kind = content_type.partition("/")[0].lower()
    return kind if kind in ("image", "video", "audio", "text") else "file"


def ending_of(content_type: str, name: str) -> str:
    """The ending, with its dot, that a file of this media type and name needs for the nodes that read it.

    The name's own where it is one of the media type's kind (a sound's for a sound), or where the type tells no kind;
    else the media type's. `.bin` where neither tells.
    """
    kind = content_type.partition(";")[0].strip().lower()
    own = PurePosixPath(name).suffix.lower()
    own = own if _ENDING.fullmatch(own) else ""
    same_kind = own in CONTENT_TYPES and CONTENT_TYPES[own].partition("/")[0] == kind.partition("/")[0]
    if own and (same_kind or kind == "application/octet-stream"):
        return own
    fitting = (ending for ending, of in CONTENT_TYPES.items() if of.partition(";")[0] == kind)
    known = None if kind == "application/octet-stream" else _USUAL.get(kind) or next(fitting, None)
    return known or own or mimetypes.guess_extension(kind) or ".bin"


def shown_in_place(kind: str) -> bool:
    """Whether a browser may show a file of this type where it is: never one that can hold a script."""
    bare = kind.partition(";")[0].strip().lower()
    return bare.startswith(("image/", "video/", "audio/")) and not bare.endswith("xml")
