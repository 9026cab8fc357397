"""A batch's progress on stderr, on a terminal only: how far, how fast, how long still."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

_ENDS = ("succeeded", "failed", "canceled", "expired", "gone")


def pace(counts: Mapping[str, Any]) -> tuple[float, float | None]:
    """Rows that ended in a minute, and the seconds until the rest has at that rate (None: not known)."""
    window_s = float(counts["window"])
    rate = counts["ended"] / window_s if window_s > 0 else 0.0
    left = counts["queued"] + counts["running"]
    return 60.0 * rate, left / rate if rate > 0 else None


def pace_line(counts: Mapping[str, Any]) -> str:
    """Rate and time left in words."""
    rate, left_s = pace(counts)
    if left_s is None:
        return f"{rate:.1f}/min"
    hours, minutes = divmod(round(left_s / 60.0), 60)
    left = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{left_s:.0f} s"
    return f"{rate:.1f}/min, {left} left"


class BatchBar:
    """One bar for all rows of a batch."""

    def __init__(self, rows: int) -> None:
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=rows, pace="")

    def __enter__(self) -> BatchBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def counted(self, counts: Mapping[str, Any]) -> None:
        """Draw how the rows stand."""
        if self._progress is not None:
            done = sum(counts[name] for name in _ENDS)
            self._progress.update(self._task, completed=done, total=counts["rows"], pace=pace_line(counts))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The bar is out of the way of what is printed meanwhile."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()
