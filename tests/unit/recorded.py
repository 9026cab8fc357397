"""What a real ComfyUI said, cut to what the tests assert (`recordings/*.json`)."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"


@cache
def _file(name: str) -> dict[str, Any]:
    return dict(json.loads((_FOLDER / name).read_text()))


def reply(name: str) -> Any:
    """A reply to POST /prompt, by status and error type."""
    return copy.deepcopy(_file("replies.json")["replies"][name])


def reply_names() -> list[str]:
    return list(_file("replies.json")["replies"])


def answer(name: str) -> Any:
    """An answer about one job."""
    return copy.deepcopy(_file("answers.json")["answers"][name])


def socket(name: str) -> list[dict[str, Any]]:
    """Messages of a WebSocket."""
    return list(copy.deepcopy(_file("socket.json")[name]))
