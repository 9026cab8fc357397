"""`python -m bench [name]`: run the benchmarks and print their figures."""

from __future__ import annotations

import asyncio
import sys

from bench import (
    bulk,
    endurance,
    false_ends,
    gpu_idle,
    large_assets,
    makespan,
    overhead,
    polling,
    polls,
    queue_floor,
    rabbit_intake,
    starts,
    streams,
)

BENCHES = {
    "overhead": overhead.run,
    "gpu_idle": gpu_idle.run,
    "queue_floor": queue_floor.run,
    "starts": starts.run,
    "bulk": bulk.run,
    "rabbit_intake": rabbit_intake.run,
    "makespan": makespan.run,
    "endurance": endurance.run,
    "polling": polling.run,
    "false_ends": false_ends.run,
    "polls": polls.run,
    "large_assets": large_assets.run,
    "streams": streams.run,
}


def main() -> int:
    """Run all benchmarks, or the one named; 1 where a figure misses its bound."""
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHES)}\n")
        return 2
    return 0 if all([asyncio.run(BENCHES[name]()) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
