"""The picture of a run: faults above, jobs and runs below, on one axis of time. Pure: values in, SVG out.

Readable on light and on dark ground: it brings a ground of its own for each, by the reader's preference.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from chaos.snapshot import Event, Snapshot
from genflow.jobs import State

WIDTH, LEFT, ROW, JOB_ROW, TOP = 1200, 150, 16, 3, 64
_STYLE = """
  :root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2328; --faint: #d8dee4; --wait: #b6bec9;
          --run: #2f6fde; --bad: #c93c37; --gone: #9a6700; --fault: #8250df; --down: #f0b8b5; }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #0d1117; --ink: #e6edf3; --faint: #2b323b; --wait: #59636e; --run: #58a6ff;
            --bad: #ff7b72; --gone: #d4a72c; --fault: #bc8cff; --down: #7d3b39; } }
  rect.ground { fill: var(--ground); } text { fill: var(--ink); font: 11px system-ui, sans-serif; }
  text.title { font-size: 14px; font-weight: 600; } line { stroke: var(--faint); }
  .fault { fill: var(--fault); } .wait { fill: var(--wait); } .run { fill: var(--run); } .down { fill: var(--down); }
  .failed { fill: var(--bad); } .canceled { fill: var(--gone); }
"""


def timeline(run: Snapshot, *, title: str) -> str:
    """The picture as SVG."""
    began = min([told.at for told in run.told] + [event.at for event in run.events], default=0.0)
    ended = max([began + 1.0, *run.times, *(row.ended_at for row in run.jobs if row.ended_at is not None)])
    scale = (WIDTH - LEFT - 20) / max(1.0, ended - began)

    def x(at: float) -> float:
        return round(LEFT + (at - began) * scale, 1)

    faults = [event for event in run.events if event.kind != "no start"]
    targets = sorted({event.target for event in faults})
    jobs_top = TOP + ROW * len(targets) + 34
    height = jobs_top + JOB_ROW * len(run.jobs) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="12" y="22">{escape(title)}</text>',
        *_legend(),
        *_axis(ended - began, x, began, height),
    ]
    for row, target in enumerate(targets):
        y = TOP + ROW * row
        parts.append(f'<text x="12" y="{y + 10}">{escape(target)}</text>')
        parts += [_fault(event, x(event.at), y, scale) for event in faults if event.target == target]
    parts.append(f'<text x="12" y="{jobs_top - 6}">{len(run.jobs)} jobs, in order of acceptance</text>')
    for number, job in enumerate(sorted(run.jobs, key=lambda each: each.created_at)):
        y = jobs_top + JOB_ROW * number
        end = job.ended_at or ended
        kind = {State.FAILED: "failed", State.CANCELED: "canceled"}.get(job.state, "wait")
        parts.append(_bar(kind, x(job.created_at), x(end), y, JOB_ROW - 1))
        for each in run.runs_of.get(job.id, []):
            parts.append(_bar("run", x(each.began), x(each.ended or ended), y, JOB_ROW - 1))
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> Iterable[str]:
    words = (
        ("fault", "a fault"),
        ("wait", "a job"),
        ("run", "its run"),
        ("failed", "it failed"),
        ("canceled", "canceled"),
    )
    for place, (kind, word) in enumerate(words):
        left = LEFT + 90 * place
        yield f'<rect class="{kind}" x="{left}" y="32" width="12" height="9"/>'
        yield f'<text x="{left + 17}" y="41">{word}</text>'


def _axis(length_s: float, x: object, began: float, height: int) -> Iterable[str]:
    assert callable(x)
    step = next((each for each in (10, 20, 30, 60, 120, 300, 600) if length_s / each <= 14), 1200)
    for second in range(0, int(length_s) + 1, step):
        at = x(began + second)
        yield f'<line x1="{at}" x2="{at}" y1="{TOP - 4}" y2="{height - 20}"/>'
        yield f'<text x="{at}" y="{height - 6}">{second} s</text>'


def _fault(event: Event, left: float, y: int, scale: float) -> str:
    told = escape(f"{event.kind} {event.seconds:g} s {event.detail}".strip(), {'"': "&quot;"})
    kind = "failed" if event.kind == "died" else "fault"
    width = max(4.0, round(event.seconds * scale, 1))
    place = f'x="{left}" y="{y + 2}" width="{width}" height="9" rx="2"'
    return f'<rect class="{kind}" {place} opacity="0.85"><title>{told}</title></rect>'


def _bar(kind: str, left: float, right: float, y: int, height: int) -> str:
    return f'<rect class="{kind}" x="{left}" y="{y}" width="{max(0.8, round(right - left, 1))}" height="{height}"/>'
