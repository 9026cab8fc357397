"""Progress on stderr: bars that move on a terminal, plain lines elsewhere. rich draws both."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from genflow.cli.following import Sight

LINE_S = 5.0
"""Seconds after which a plain line tells how far a step has come."""

_WIDEST, _NARROWEST = 28, 10
_BESIDE = 68
"""Columns that the label, the numbers and the longest usual sentence take beside a bar."""


def drawing(label: str, sight: Sight, columns: int) -> RenderableType:
    """The bars of one job, all of it and the steps of the node that runs, on a screen of so many columns."""
    width = max(_NARROWEST, min(_WIDEST, columns - _BESIDE))
    bars = Table.grid(padding=(0, 1))
    bars.add_column(width=10, no_wrap=True)
    bars.add_column(width=width)
    bars.add_column(width=5, justify="right", no_wrap=True)
    bars.add_column(no_wrap=True, overflow="ellipsis")
    bars.add_row(
        Text(label, style="bold"),
        _bar(sight.fraction, 1.0, width),
        f"{sight.fraction:.0%}",
        sight.state,
    )
    if sight.steps and not sight.ended:
        bars.add_row(
            Text(sight.node or "", style="dim", justify="right"),
            _bar(float(sight.step or 0), float(sight.steps), width),
            f"{sight.step}/{sight.steps}",
            Text("steps", style="dim"),
        )
    return bars


def _bar(done: float, total: float, width: int) -> ProgressBar:
    return ProgressBar(total, done, width=width, complete_style="cyan", finished_style="green")


class Bars:
    """Shows the sights of one job on a console, for as long as the context is open."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said = ""
        self._said_at = 0.0

    def __enter__(self) -> Bars:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, sight: Sight) -> None:
        """Draw a sight; without a terminal, write a line when there is news."""
        if self._live is not None:
            self._live.update(drawing(self._label, sight, self._console.width), refresh=True)
            return
        line = f"{sight.fraction:4.0%} {sight.state}"
        phrase = sight.state.split(" — ")[0].rstrip("0123456789 s")
        now = time.monotonic()
        if phrase != self._said or now - self._said_at >= LINE_S or sight.ended:
            self._said, self._said_at = phrase, now
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
