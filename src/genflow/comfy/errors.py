"""What can go wrong on the wire to one ComfyUI server. Never shown to a client: the worker turns them into failures."""

from __future__ import annotations

from genflow.errors import clean_text


class ComfyError(Exception):
    """Any trouble with a ComfyUI server."""


class ServerUnreachable(ComfyError):
    """No whole answer came: refused, reset, cut off, timed out, or no such name."""


class ServerAnswered(ComfyError):
    """An answer came, but not the one asked for. Holds its status and the beginning of its body."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        self.body = clean_text(body, 500)
        super().__init__(f"{status}: {self.body}")


class OutputGone(ComfyError):
    """The server has no such file any more, or holds it with 0 bytes."""


class Withheld(ComfyError):
    """We held back the rest of a request, for the lease's margin was used up; nothing complete left us."""
