"""Lengths and points of time as people write them: `90s`, `1h30m`, `2d`, or an RFC 3339 time. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"([0-9]{1,9})([smhdw])")
_WHOLE = re.compile(r"(?:[0-9]{1,9}[smhdw]){1,5}")
_MOST_S = 100 * 365 * 86_400


def seconds_of(text: str) -> int:
    """The seconds in a length of time: whole numbers with `s`, `m`, `h`, `d` or `w`, such as `1h30m`.

    Raises ValueError, saying what would be right, for anything else and for more than a hundred years.
    """
    given = text.strip()
    parts = _PART.findall(given) if _WHOLE.fullmatch(given) else []
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not parts or seconds > _MOST_S:
        raise ValueError(f"{given[:40]!r} is no length of time; write 90s, 30m, 1h, 2d or 1h30m")
    return seconds


def moment_of(text: str, now: datetime) -> datetime:
    """The point of time that is meant: so long before `now`, or an RFC 3339 time with its zone.

    Raises ValueError, saying what would be right, for anything else.
    """
    given = text.strip()
    try:
        return now - timedelta(seconds=seconds_of(given))
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{given[:40]!r} is neither a length of time, such as 30m, 1h or 2d, nor a time with its zone, such as"
            " 2026-08-22T03:00:00Z"
        )
    return moment.astimezone(UTC)
