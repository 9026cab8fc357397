"""The picture of docs/benchmarks.md: the five figures as bars, in light and in dark. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from bench.figures import Findings
from bench.page import day, shown

WIDTH, COLUMN, ROW = 960, 464, 26
PANEL_TOP, PANEL_GAP = 58, 26
LABEL, VALUE = 150, 78
LONGEST = 24
"""Characters of a bar's name, at most."""
OURS = "genflow"

_STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 } .head { font-weight: 600 } .faint { fill: #59636e; font-size: 12px }
  .bar { fill: #afb8c1 } .ours { fill: #0969da } .axis { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d } text { fill: #e6edf3 } .faint { fill: #9198a1 }
    .bar { fill: #59636e } .ours { fill: #4493f8 } .axis { stroke: #3d444d }
  }
"""


@dataclass(frozen=True)
class Panel:
    """One figure: its title, which way is good, and its bars by name."""

    title: str
    good: str
    bars: Mapping[str, float]
    unit: str = ""
    all_ours: bool = False
    at_least: float = 0.0
    """What a full bar stands for at least, so that next to nothing looks like it."""


def panels(results: Mapping[str, Findings]) -> list[Panel]:
    """The figures that were measured, in the order of the page."""

    def of(bench: str, name: str) -> Mapping[str, float]:
        found: Mapping[str, float] = results[bench].numbers.get(name, {}) if bench in results else {}
        return found

    faults = f"the same {sum(of('crashes', 'faults').values()):.0f} faults for both"
    sizes = {name: ratio for name, ratio in of("scale", "full_to_empty").items() if len(name) < LONGEST}
    fleets = {
        f"{servers} server{'s' if servers != '1' else ''}": share
        for servers, share in of("fleet", "idle_by_fleet").items()
    }
    drawn = [
        Panel("1  Jobs/s through a no-op server", "more is better", of("side_by_side", "jobs_per_s")),
        Panel(
            "2  Submit to stored picture, without the run, p50", "less is better", of("side_by_side", "p50_ms"), " ms"
        ),
        Panel("    the same, p95", "less is better", of("side_by_side", "p95_ms"), " ms"),
        Panel(
            "3  GPU idle share under a backlog",
            "less is better",
            _percent(of("side_by_side", "idle")),
            " %",
            at_least=1,
        ),
        Panel("4  Runs doubled per 1,000 crashes", faults, of("crashes", "doubled_per_1000")),
        Panel("    Jobs lost per 1,000 crashes", faults, of("crashes", "lost_per_1000")),
        Panel("5  Beside 5 million finished jobs", "times an empty table", sizes, " ×", True),
        Panel("    GPU idle share by servers", "less is better", _percent(fleets), " %", True, at_least=5),
    ]
    return [panel for panel in drawn if panel.bars]


def _percent(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * share for name, share in shares.items()}


def drawn(results: Mapping[str, Findings]) -> str:
    """The SVG of these results."""
    parts: list[str] = []
    bottoms = [PANEL_TOP, PANEL_TOP]
    for number, panel in enumerate(panels(results)):
        column = number % 2
        top = max(bottoms) if column == 0 else bottoms[0]
        if column == 0:
            bottoms = [top, top]
        parts += _panel(panel, 24 + column * COLUMN, top)
        height = 26 + ROW * len(panel.bars) + PANEL_GAP
        bottoms = [top, top + height] if column == 0 else [top, max(bottoms[1], top + height)]
    height = max(bottoms) + 8
    days = sorted(each.date for each in results.values())
    when = f"measured on {day(days[-1])}; simulated servers, no GPU; docs/benchmarks.md has all figures" if days else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>genflow's benchmarks</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            _text(24, 34, "title", "genflow beside what people use today"),
            *parts,
            _text(24, height - 14, "faint", when),
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, left: int, top: int) -> list[str]:
    most = max([*panel.bars.values(), panel.at_least, 1e-9])
    room = COLUMN - 48 - LABEL - VALUE
    lines = [_text(left, top + 14, "head", panel.title, panel.good)]
    for row, (name, value) in enumerate(panel.bars.items()):
        y = top + 26 + row * ROW
        kind = "bar ours" if panel.all_ours or name == OURS else "bar"
        length = max(1.0, room * value / most)
        lines.append(_text(left, y + 14, "", name))
        lines.append(f'<rect class="{kind}" x="{left + LABEL}" y="{y + 2}" width="{length:.1f}" height="16" rx="2"/>')
        lines.append(_text(round(left + LABEL + length + 6), y + 14, "", f"{_short(value)}{panel.unit}"))
    foot = top + 26 + ROW * len(panel.bars)
    lines.append(f'<path class="axis" d="M{left + LABEL} {top + 24}V{foot}"/>')
    return lines


def _short(value: float) -> str:
    return shown(value) if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def _text(x: int, y: int, kind: str, text: str, note: str = "") -> str:
    behind = f' <tspan class="faint" font-weight="400" dx="6">{escape(note)}</tspan>' if note else ""
    return f'<text class="{kind}" x="{x}" y="{y}" xml:space="preserve">{escape(text)}{behind}</text>'
