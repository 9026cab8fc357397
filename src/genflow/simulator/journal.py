"""The books on disk: one JSON line an event, so that they outlive the death of the process that kept them.

A line is one write to a file opened for appending: a killed process leaves whole lines, and several that keep one
file one after the other leave them in order.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from blake3 import blake3


class Journal:
    """Appends what happens to a file. A journal without a file keeps nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self._handle: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, prompt: str | None = None, submit: str | None = None, **details: Any) -> None:
        """Append an event, at the wall clock's time in seconds. Any thread may."""
        if self._handle is None:
            return
        told: dict[str, Any] = {"at": time.time(), "event": event}
        told |= {name: value for name, value in (("prompt", prompt), ("submit", submit)) if value is not None}
        os.write(self._handle, json.dumps(told | details).encode() + b"\n")

    def wrote(self, prompt: str, submit: str | None, kind: str, name: str, path: Path) -> None:
        """Append that a run wrote this file, with the hash of its bytes."""
        if self._handle is not None:
            digest = blake3().update_mmap(path).hexdigest()
            self.write("wrote", prompt, submit, kind=kind, name=name, hash=digest)

    def close(self) -> None:
        """Nothing more is appended."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
