"""What a run came to: a text for people, a JSON for programs, a picture of faults and jobs in time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.oracle import Verdict
from chaos.plan import Plan
from chaos.snapshot import Snapshot
from chaos.story import story
from chaos.timeline import timeline

STORIES = 5
"""Jobs whose stories are printed; all are in the JSON."""
_LOST = "what_was_accepted_is_not_lost"


def report(plan: Plan, run: Snapshot, verdicts: list[Verdict], *, wall_s: float, without: list[str]) -> dict[str, Any]:
    """The report as a value; `without` names what this machine has not got."""
    return {
        "seed": plan.seed,
        "minutes": plan.minutes,
        "wall_s": round(wall_s, 1),
        "without": without,
        "jobs": len(run.jobs),
        "ends": dict(sorted(Counter(row.state.name.lower() for row in run.jobs).items())),
        "wishes": dict(sorted(Counter(wish.kind for wish in run.wishes).items())),
        "faults": dict(
            sorted(
                Counter(_kind(event.kind) for event in run.events if event.kind not in ("no start", "healed")).items()
            )
        ),
        "runs": len(run.executions),
        "lost": len({verdict.broken.job for verdict in verdicts if verdict.rule == _LOST}),
        "doubled": sum(row.doubled for row in run.jobs),
        "attempts": sum(row.attempt for row in run.jobs),
        "resubmits": sum(row.resubmits for row in run.jobs),
        "takeovers": sum(row.takeovers for row in run.jobs),
        "late_receipts": len(run.late_receipts),
        "most_live_jobs": max((count for _, count in run.live), default=0),
        "memory_mib": {name: round(held / 2**20) for name, held in sorted(run.memory.items())},
        "broken": [
            {"rule": each.rule, "what": each.broken.what, "job": each.broken.job, "story": story(run, each.broken.job)}
            for each in verdicts
        ],
    }


def _kind(kind: str) -> str:
    return "failpoint" if kind in ("died at", "frozen at") else kind


def text(told: dict[str, Any]) -> str:
    """The report for people."""

    def listed(counts: dict[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counts.items())

    lines = [
        f"seed {told['seed']}, {told['minutes']:g} minutes, {told['wall_s']:.0f} s of wall time",
        f"jobs     {told['jobs']}: {listed(told['ends'])}",
        f"faults   {sum(told['faults'].values())}: {listed(told['faults'])}",
        f"runs     {told['runs']}; attempts {told['attempts']}, resubmits {told['resubmits']},"
        f" takeovers {told['takeovers']}",
        f"lost     {told['lost']}",
        f"doubled  {told['doubled']}, each counted by its job",
    ]
    if told["without"]:
        lines.append(f"without  {', '.join(told['without'])}")
    stories: set[str] = set()
    for each in told["broken"]:
        lines += ["", f"BROKEN   {each['rule'].replace('_', ' ')} (seed {told['seed']})", f"         {each['what']}"]
        if each["job"] and each["job"] not in stories and len(stories) < STORIES:
            stories.add(each["job"])
            lines += [f"         {line}" for line in each["story"]]
    count = len(told["broken"])
    lines += ["", f"{count} broken promises" if count else "every promise kept"]
    return "\n".join(lines)


def write(folder: Path, told: dict[str, Any], run: Snapshot) -> None:
    """`report.json`, `report.txt` and `timeline.svg` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told, indent=1) + "\n")
    (folder / "report.txt").write_text(text(told) + "\n")
    (folder / "timeline.svg").write_text(timeline(run, title=f"seed {told['seed']}: {told['jobs']} jobs"))
