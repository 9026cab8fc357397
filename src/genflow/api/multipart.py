"""A multipart form read as it comes: texts are held, under a bound, and a file's bytes are handed on and never kept."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from genflow.api.bodies import content_type, unsupported_media_type
from genflow.api.errors import invalid_request
from genflow.errors import GenflowError, clean_text

TEXT_BYTES = 16 * 1024
"""Longest text of a form, in bytes."""
PARTS = 100
"""Parts of a form at most."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text field, whole."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class File:
    """A file begins: its bytes come next."""

    name: str


class _Mark(Enum):
    END_OF_PART = 1
    END_OF_FORM = 2


Part = Text | File


class MultipartReader:
    """Reads one request's form: its parts in their order, and the bytes of the file that was told last.

    Raises GenflowError: 415 for another media type, 400 `invalid_request` for a form that is broken or cut short, has
    too many parts or too long a text.
    """

    def __init__(self, request: Request, chunks: AsyncIterator[bytes]) -> None:
        if content_type(request) != "multipart/form-data":
            raise unsupported_media_type(content_type(request), "multipart/form-data")
        boundary = parse_options_header(request.headers.get("content-type", ""))[1].get(b"boundary")
        if not boundary:
            raise invalid_request("The Content-Type of a form must name its boundary.", field="Content-Type")
        self._chunks = chunks
        self._seen: deque[Part | bytes | _Mark] = deque()
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._name: str | None = None
        self._text: bytearray | None = None
        self._parts = 0
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_data,
                    "on_part_data": self._take_data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _broken(str(error)) from None
        self._disposition = b""

    async def next_part(self) -> Part | None:
        """The next part; None once the form has ended. What was not read of a file is passed over."""
        while True:
            item = await self._next()
            if item is _Mark.END_OF_FORM:
                return None
            if isinstance(item, Text | File):
                return item

    async def file_bytes(self) -> AsyncIterator[bytes]:
        """The bytes of the file that was told last, to its end."""
        while isinstance(item := await self._next(), bytes):
            yield item

    async def _next(self) -> Part | bytes | _Mark:
        while not self._seen:
            if self._ended:
                return _Mark.END_OF_FORM
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise _broken("it ends before its last boundary")
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise _broken(str(error)) from None
        return self._seen.popleft()

    # --- what the parser tells ---

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > PARTS:
            raise _broken(f"it has more than {PARTS} parts")
        self._disposition = b""

    def _end_header(self) -> None:
        if bytes(self._header[0]).lower() == b"content-disposition":
            self._disposition = bytes(self._header[1])
        self._header = (bytearray(), bytearray())

    def _begin_data(self) -> None:
        options = parse_options_header(self._disposition)[1]
        if b"name" not in options:
            raise _broken("a part of it has no name")
        self._name = options[b"name"].decode("utf-8", "replace")
        self._text = None if b"filename" in options else bytearray()
        if self._text is None:
            self._seen.append(File(self._name))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self._seen.append(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > TEXT_BYTES:
            name = clean_text(self._name or "", 80)
            raise invalid_request(f"The form's field {name} is longer than {TEXT_BYTES} bytes.", field=name)

    def _end_part(self) -> None:
        if self._text is None:
            self._seen.append(_Mark.END_OF_PART)
            return
        try:
            value = self._text.decode()
        except UnicodeDecodeError:
            raise _broken(f"its field {clean_text(self._name or '', 80)} is not UTF-8") from None
        self._seen.append(Text(self._name or "", value))

    def _end(self) -> None:
        self._ended = True


def _broken(why: str) -> GenflowError:
    return invalid_request(f"The form can't be read: {clean_text(why, 200)}.", field="body")
