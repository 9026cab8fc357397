"""Exit statuses of every command; docs/reference/exit-codes.md explains them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit status says."""

    OK = 0
    NEGATIVE = 1
    """The answer is no: a job failed, the service is not healthy, a thing does not exist."""
    USAGE = 2
    """Asked in a wrong way: an unknown flag, a value that the service refuses, a file that can't be read."""
    DEAD_LETTERS = 3
    """Of several jobs that were waited for, some are dead letters."""
    UNREACHABLE = 4
    """A service that is needed can't be reached."""
    INTERRUPTED = 130
    """Ctrl-C, by the shells' convention: 128 + SIGINT."""


def exit_of_status(status: int) -> Exit:
    """The exit status for an HTTP status that refuses."""
    if status in (400, 413, 415, 422):
        return Exit.USAGE
    return Exit.UNREACHABLE if status in (502, 503, 504) else Exit.NEGATIVE


class Misuse(Exception):
    """The command was given something that can't be right; the message says what would be."""
