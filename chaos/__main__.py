"""`python -m chaos`: one run, its report, and exit status 1 where a promise was broken."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

import structlog
import uvloop

from chaos.driver import run
from chaos.oracle import judge
from chaos.plan import plan
from chaos.report import report, text, write
from tests.support.rabbit import programs
from tests.support.repository import ROOT

SEED = 20_260_901
"""The seed of `make chaos` and of CI."""


def main() -> int:
    """Run and report; 1 where anything is broken."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="what the faults and the jobs are drawn from")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long it takes, about")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds the genflow to attack")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "chaos", help="where the report goes")
    parser.add_argument("--guard", action="store_true", help="on servers that refuse a submit they have seen")
    given = parser.parse_args()
    without = [] if programs() else ["RabbitMQ"]
    drawn = plan(given.seed, given.minutes, broker=not without)
    print(
        f"chaos: seed {given.seed}, {len(drawn.faults)} faults and {len(drawn.wishes)} wishes in {drawn.active_s:g} s"
    )
    for missing in without:
        print(f"chaos: this machine has no {missing}, so it goes on without")
    sys.stdout.flush()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.monotonic()
    seen = uvloop.run(run(drawn, given.source.resolve(), given.out / "logs", guard=given.guard))
    verdicts = judge(seen)
    told = report(drawn, seen, verdicts, wall_s=time.monotonic() - began, without=without)
    write(given.out, told, seen)
    print(text(told))
    print(f"report   {given.out / 'report.json'}, {given.out / 'timeline.svg'}")
    return 1 if verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
