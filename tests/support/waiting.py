"""Wait for something another process does, without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Return as soon as `holds` answers something true; fail, saying `what` never came, after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"in {timeout_s:g} s never came: {what}"
        time.sleep(0.02)
