"""The knobs of a simulated server: every fault that can be asked for while it runs.

Each is documented in docs/reference/simulator.md. A *count* is a number of times (`true` = until it is set back);
a *shot* is an object with its own keys and `times` (default 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genflow.errors import GenflowError
from genflow.simulator.faults import CLASSES
from genflow.simulator.options import DEFAULT_VRAM, WORDS, parse_script

ENDLESS = -1

REPLY_MODES = ("lost", "late", "html", "502", "500", "node_errors")
QUEUED_BY_DEFAULT = {"lost": True, "late": True, "html": False, "502": False, "500": True, "node_errors": True}


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob: what it takes, and where it rests."""

    parse: Callable[[Any], Any]
    rest: Any = None
    action: bool = False
    """An action is carried out once by the server and keeps no value."""


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _count(value: Any) -> int:
    if value is True:
        return ENDLESS
    if value is None or value is False:
        return 0
    if not isinstance(value, int) or value < 0:
        raise ValueError("a number of times, true for always, or 0")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError("a number from 0")
    return float(value)


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**50:
        raise ValueError("a number of bytes from 0")
    return value


def _positive(value: Any) -> float:
    number = _number(value)
    if number == 0:
        raise ValueError("a number above 0")
    return number


def _node_number(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("the number of a node in running order, from 1, or null")
    return value


def _seconds(key: str) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        return _number(value.get(key, 0.0) if isinstance(value, dict) else value)

    return parse


def _shot(**keys: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def parse(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"an object with {', '.join(keys)} and times")
        unknown = set(value) - set(keys) - {"times"}
        if unknown:
            raise ValueError(f"an object with {', '.join(keys)} and times only, not {', '.join(sorted(unknown))}")
        parsed = {"times": _count(value.get("times", 1))}
        for key, check in keys.items():
            try:
                parsed[key] = check(value.get(key))
            except ValueError as fault:
                raise ValueError(f"an object whose {key} is {fault}") from None
        return parsed

    return parse


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return parse


def _percent(value: Any) -> float:
    number = _number(100 if value is None else value)
    if number > 100:
        raise ValueError("a number from 0 to 100")
    return number


def _reply(value: Any) -> dict[str, Any] | None:
    shot: dict[str, Any] | None = _shot(
        mode=_one_of(*REPLY_MODES), queued=lambda given: given, seconds=lambda given: _number(given or 0)
    )({"mode": value} if isinstance(value, str) else value)
    if shot is not None:
        given = shot["queued"]
        shot["queued"] = QUEUED_BY_DEFAULT[shot["mode"]] if given is None else _flag(given)
    return shot


def _error(value: Any) -> dict[str, Any] | None:
    parsed: dict[str, Any] | None = _shot(**{"class": _one_of(*CLASSES)})(
        {"class": value} if isinstance(value, str) else value
    )
    return parsed


def _script(value: Any) -> list[str]:
    if isinstance(value, str):
        return parse_script(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return parse_script(",".join(value))
    raise ValueError(f"words out of {', '.join(WORDS)}")


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("a list of node classes")
    return list(value)


def _models(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise ValueError("an object of folder = list of file names")
    for names in value.values():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("an object of folder = list of file names")
    return {str(folder): list(names) for folder, names in value.items()}


def _busy(value: Any) -> int:
    count = _count(value)
    if count < 0 or count > 10_000:
        raise ValueError("a number of prompts from 0 to 10,000")
    return count


KNOBS: dict[str, Knob] = {
    # POST /prompt
    "reply": Knob(_reply),
    "too_large": Knob(_count, 0),
    "posted_twice": Knob(_count, 0),
    "script": Knob(_script, action=True),
    "error": Knob(_error),
    # The run
    "seconds_per_step": Knob(_number),
    "seconds_per_megapixel": Knob(_number),
    "speed_factor": Knob(_positive, 1.0),
    "swap_seconds": Knob(_number, 0.0),
    "vram": Knob(_bytes, DEFAULT_VRAM),
    "memory_growth": Knob(_bytes, 0),
    "hold": Knob(_node_number),
    "release": Knob(_flag, action=True),
    "history_delay_ms": Knob(_number, 0.0),
    "empty_outputs": Knob(_count, 0),
    "cached_without_file": Knob(_count, 0),
    "interrupt_ignored": Knob(_count, 0),
    "interrupt_lost": Knob(_count, 0),
    "worker_dead": Knob(_flag, False),
    "gc_stall": Knob(_shot(seconds=_positive)),
    # Sockets
    "socket_silent": Knob(_flag, False),
    "socket_drop": Knob(_shot(percent=_percent)),
    "socket_stall": Knob(_shot(seconds=_positive)),
    "socket_refused": Knob(_count, 0),
    "socket_orphan": Knob(_count, 0),
    "cross_broadcast": Knob(_flag, False),
    "previews": Knob(_flag, False),
    "events_out_of_order": Knob(_flag, False),
    # Files
    "save_delay_ms": Knob(_number, 0.0),
    "video_bytes": Knob(_bytes, 0),
    "view_fail": Knob(_count, 0),
    "view_missing": Knob(_count, 0),
    "view_empty": Knob(_count, 0),
    "view_truncated": Knob(_count, 0),
    # The server
    "freeze": Knob(_seconds("seconds"), action=True),
    "restart": Knob(_seconds("down_s"), action=True),
    "busy": Knob(_busy, action=True),
    "busy_for": Knob(_number, 0.0),
    "models": Knob(_models, action=True),
    "lacks": Knob(_names, action=True),
}


class Knobs:
    """The positions of all knobs of one server. They survive a simulated restart."""

    def __init__(self, **positions: Any) -> None:
        self._values: dict[str, Any] = {name: knob.rest for name, knob in KNOBS.items() if not knob.action}
        self._values.update(positions)

    def get(self, name: str) -> Any:
        """The position of a knob."""
        return self._values[name]

    def flag(self, name: str) -> bool:
        """Whether a switch is on."""
        return self._values[name] is True

    def take(self, name: str) -> Any:
        """Use up one time of a count or shot. Gives its value, or None when nothing is left."""
        value = self._values[name]
        if isinstance(value, dict):
            if value["times"] == 0:
                return None
            if value["times"] > 0:
                left = value["times"] - 1
                self._values[name] = value | {"times": left} if left else None
            return value
        if value is None or value == 0:
            return None
        if value > 0:
            self._values[name] = value - 1
        return value

    def set(self, body: Any) -> dict[str, Any]:
        """Check a whole request and set the knobs in it. Returns the actions, for the server to carry out.

        Raises GenflowError (400) naming the known knobs, or what one takes; nothing is set then.
        """
        if not isinstance(body, dict):
            raise GenflowError("invalid_knob", "the body must be an object of knob = value", status=400)
        parsed: dict[str, Any] = {}
        for name, value in body.items():
            knob = KNOBS.get(name)
            if knob is None:
                known = ", ".join(KNOBS)
                raise GenflowError("invalid_knob", f"unknown knob {name!r}; known knobs: {known}", status=400)
            try:
                parsed[name] = knob.parse(value)
            except ValueError as fault:
                raise GenflowError("invalid_knob", f"knob {name!r} takes {fault}", status=400) from None
        actions = {name: value for name, value in parsed.items() if KNOBS[name].action}
        self._values.update({name: value for name, value in parsed.items() if name not in actions})
        return actions

    def shown(self) -> dict[str, Any]:
        """All positions."""
        return dict(self._values)
