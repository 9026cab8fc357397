"""Named places where a test may kill, freeze or fail a process, so that a crash lands where it is meant.

Armed by the setting `failpoints` (`GENFLOW_FAILPOINTS="submit.after_intent=kill"`); unarmed, a hit costs one dictionary
look-up. docs/reference/failpoints.md lists them all.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from enum import StrEnum

FAILPOINTS: dict[str, str] = {
    "claim.after": "a job was claimed, nothing else done",
    "upload.before": "before the first byte of an upload",
    "upload.in": "a part of an upload has left",
    "upload.after": "the photo is on the server, not yet recorded",
    "upload.after_commit": "the upload is recorded",
    "submit.before_intent": "before the submit is written down",
    "submit.after_intent": "the submit is written down, nothing sent",
    "submit.after_ask": "the server was asked and knows nothing",
    "submit.after_check": "the last look at the lease before the prompt's last byte",
    "submit.before_receipt": "the server's answer is here, not yet recorded",
    "submit.after_receipt": "the receipt is recorded",
    "wait.before": "before the first poll",
    "wait.running": "the prompt was seen running",
    "wait.before_commit": "the run ended, not yet recorded",
    "wait.after_commit": "the end of the run is recorded",
    "download.before": "before the first byte of an output",
    "download.in": "a part of an output has come",
    "download.before_commit": "every output is stored, the job not yet finished",
    "download.after_commit": "the job is finished",
    "scrub.before_history": "an ended job's files are emptied at its server, its history entry still stands",
    "erase.before_delete": "the names of jobs past their time are gone from the store, their rows still stand",
    "blobs.after_take": "blobs are marked as being deleted, their bytes still there",
    "blobs.after_delete": "the bytes of blobs are gone, which is not yet recorded",
    "end.before_commit": "an attempt ended without a result, not yet recorded",
    "end.after_commit": "that is recorded: a retry, or a dead letter",
    "release.before": "before a job is given back",
    "cancel.before_stop": "a cancel was seen, the prompt not yet stopped",
    "enqueue.before_commit": "the API is about to commit the job",
    "rabbit.after_record": "a message's job is committed, the message not yet acknowledged",
    "rabbit.after_dead_confirm": "RabbitMQ has the dead letter, which is not yet marked as told",
    "rabbit.before_ack": "a message is done with, and not yet acknowledged",
    "enqueue.after_commit": "the job is committed, the client not yet answered",
}


class Action(StrEnum):
    """What an armed failpoint does to its process."""

    KILL = "kill"
    FREEZE = "freeze"
    ERROR = "error"


class FailpointError(Exception):
    """Raised by a failpoint armed with `error`."""


@dataclass(slots=True)
class _Armed:
    action: Action
    countdown: int


_armed: dict[str, _Armed] = {}


def arm(specification: str) -> None:
    """Arm failpoints from `NAME=kill|freeze|error[@N]`, comma separated; N = on the N-th hit (1).

    Replaces what was armed.
    Raises ValueError for a name or an action that doesn't exist.
    """
    _armed.clear()
    for part in filter(None, (piece.strip() for piece in specification.split(","))):
        name, _, action = part.partition("=")
        action, _, count = action.partition("@")
        if name not in FAILPOINTS:
            raise ValueError(f"no failpoint is called {name!r}; known are {', '.join(FAILPOINTS)}")
        _armed[name] = _Armed(Action(action), int(count or 1))


def hit(name: str) -> None:
    """Pass the failpoint `name`: nothing, unless it is armed. KeyError for a name that isn't registered."""
    if not _armed:
        return
    FAILPOINTS[name]
    armed = _armed.get(name)
    if armed is None:
        return
    armed.countdown -= 1
    if armed.countdown != 0:
        return
    sys.stderr.write(f"failpoint {name}: {armed.action}\n")
    sys.stderr.flush()
    match armed.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.FREEZE:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Action.ERROR:
            raise FailpointError(name)
