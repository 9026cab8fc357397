"""A form is the same form however the network cuts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fastapi import Request

from genflow.api.multipart import File, MultipartReader, Text
from genflow.errors import GenflowError

BYTES = b"\r\n--edge\r\n--\r\n-edg\x00\r" * 3
"""A file full of what looks like the boundary's beginning."""
BODY = (
    b'--edge--\r\nContent-Disposition: form-data; name="tags"\r\n\r\ninput\r\n'
    b'--edge--\r\ncontent-disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    + BYTES
    + b'\r\n--edge--\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n\xc3\xa4.png'
    + b"\r\n--edge----\r\nafterwards"
)


def reader(body: bytes, size: int) -> MultipartReader:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    headers = [(b"content-type", b"multipart/form-data; boundary=edge--")]
    return MultipartReader(Request({"type": "http", "headers": headers}), chunks())


async def parts(form: MultipartReader) -> list[Text | File | bytes]:
    found: list[Text | File | bytes] = []
    while (part := await form.next_part()) is not None:
        found.append(part)
        if isinstance(part, File):
            found.append(b"".join([piece async for piece in form.file_bytes()]))
    return found


@pytest.mark.parametrize("size", [*range(1, 40), len(BODY)])
async def test_the_cuts_change_nothing(size: int) -> None:
    wanted = [Text("tags", "input"), File("file"), BYTES, Text("file_path", "ä.png")]
    assert await parts(reader(BODY, size)) == wanted


async def test_a_form_that_was_cut_off_is_never_a_whole_one() -> None:
    for end in range(BODY.index(b"\r\n--edge----") + len(b"\r\n--edge----")):
        with pytest.raises(GenflowError) as refused:
            await parts(reader(BODY[:end], 1 + end % 30))
        assert (refused.value.status, refused.value.code) == (400, "invalid_request")
