"""Lengths and points of time are read as people write them, and everything else is refused with what would be right."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from genflow.durations import moment_of, seconds_of

NOW = datetime(2026, 8, 22, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("1h", 3_600), ("2d", 172_800), ("1w", 604_800), ("1h30m", 5_400), (" 0s ", 0)],
)
def test_a_length_of_time_is_read(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1", "h", "-1h", "1.5h", "1 h", "1H", "1y", "1hour", "٣h", "999999999w", "1h" * 6]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s, 30m, 1h, 2d or 1h30m"):
        seconds_of(text)


def test_a_point_of_time_is_so_long_ago_or_a_time_with_its_zone() -> None:
    assert moment_of("1h", NOW) == datetime(2026, 8, 22, 9, tzinfo=UTC)
    assert moment_of("2026-08-22T11:30:00+02:00", NOW) == datetime(2026, 8, 22, 9, 30, tzinfo=UTC)
    for text in ("yesterday", "2026-08-22T10:00:00", "2026-08-22", "", "1", "9" * 100):
        with pytest.raises(ValueError, match="neither a length of time"):
            moment_of(text, NOW)
