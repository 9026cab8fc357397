"""What bytes are, by how they begin: the media type that an object store sends with them.

One blob may stand behind several records with other names; its type follows from its bytes alone, so the store's
answer is the same whoever put it first. What isn't known here is a file to be saved, never a page to be shown.
"""

from __future__ import annotations

UNKNOWN = "application/octet-stream"
HEAD_BYTES = 64
"""As many bytes of the beginning tell the type."""

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"glTF": "model/gltf-binary",
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_BRANDS = {b"avif": "image/avif", b"avis": "image/avif", b"qt  ": "video/quicktime", b"M4A ": "audio/mp4"}
_EBML = b"\x1aE\xdf\xa3"

KNOWN = frozenset(
    {UNKNOWN, "video/mp4", "video/webm", "video/x-matroska", *_BEGINNINGS.values(), *_RIFF.values(), *_BRANDS.values()}
)
"""Every type that `media_type` tells."""


def media_type(head: bytes) -> str:
    """The type of bytes that begin like this."""
    for beginning, kind in _BEGINNINGS.items():
        if head.startswith(beginning):
            return kind
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], UNKNOWN)
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    if head.startswith(_EBML):
        return "video/x-matroska" if b"matroska" in head else "video/webm"
    return UNKNOWN
