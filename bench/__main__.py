"""`python -m bench [name …]`: run the benchmarks, print their figures, and write them into docs/benchmarks.md."""

from __future__ import annotations

import sys

from bench import (
    bulk,
    crashes,
    endurance,
    false_ends,
    fleet,
    gpu_idle,
    large_assets,
    makespan,
    overhead,
    polling,
    polls,
    queue_floor,
    rabbit_intake,
    scale,
    side_by_side,
    starts,
    streams,
)
from bench.runner import Bench, run_all

BENCHES: dict[str, Bench] = {
    "side_by_side": side_by_side,
    "crashes": crashes,
    "scale": scale,
    "fleet": fleet,
    "overhead": overhead,
    "gpu_idle": gpu_idle,
    "queue_floor": queue_floor,
    "starts": starts,
    "bulk": bulk,
    "rabbit_intake": rabbit_intake,
    "makespan": makespan,
    "endurance": endurance,
    "polling": polling,
    "false_ends": false_ends,
    "polls": polls,
    "large_assets": large_assets,
    "streams": streams,
}


if __name__ == "__main__":
    sys.exit(run_all(BENCHES, sys.argv[1:]))
