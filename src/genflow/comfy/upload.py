"""A multipart form written by hand: its length is known before it is sent, and its names stay as they are.

aiohttp's own form percent-encodes names, and ComfyUI keeps them so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from genflow.comfy.errors import Withheld


@dataclass(frozen=True, slots=True)
class Form:
    """A form ready to be sent: its chunks, their size in bytes and the Content-Type with the boundary."""

    chunks: AsyncIterator[bytes]
    size: int
    content_type: str


def multipart(
    name: str, values: Mapping[str, str], chunks: AsyncIterator[bytes], size: int, gate: Callable[[], bool]
) -> Form:
    """The form of POST /upload/image: text fields, then the file `name` of `size` bytes.

    `gate()` is asked before each chunk; on no the chunks raise Withheld. They raise ValueError where the file is not
    `size` bytes. Raises ValueError for a name or value with a quote, a backslash or a control character. What is not
    ASCII goes as UTF-8, which is how ComfyUI reads it (F6.5).
    """
    for text in (name, *values.values()):
        if not text.isprintable() or '"' in text or "\\" in text:
            raise ValueError(f"a name for an upload must have no quotes, backslashes or control characters: {text!r}")
    if not name or "/" in name:
        raise ValueError(f"a file name for an upload must have no folder in it, not {name!r}")
    boundary = f"genflow-{uuid4().hex}"
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in values.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    tail = f"\r\n--{boundary}--\r\n"

    async def written() -> AsyncIterator[bytes]:
        yield head.encode()
        sent = 0
        async for chunk in chunks:
            if not gate():
                raise Withheld("the lease leaves no room to go on with this upload")
            sent += len(chunk)
            if sent > size:
                break
            yield chunk
        if sent != size:
            raise ValueError(f"{name} was said to have {size} bytes and has {'more' if sent > size else sent}")
        yield tail.encode("ascii")

    return Form(written(), len(head.encode()) + size + len(tail), f"multipart/form-data; boundary={boundary}")
