"""`python -m chaos.mutants [NAME...]`: attack each mutant; exit status 1 where one comes through.

With `--seeds N` each is attacked with the committed seed and N more, and must be caught with the first and with nine of
ten of the others. A run that breaks a promise says which; one whose house could not even be built is no proof.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos.__main__ import SEED
from chaos.mutants.apply import make
from chaos.mutants.table import MUTANTS, Mutant
from tests.support.repository import ROOT

OF_TEN = 9


def main() -> int:
    """Attack and print; 1 where a mutant was not caught often enough."""
    parser = argparse.ArgumentParser(prog="python -m chaos.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all where none is named")
    parser.add_argument("--seeds", type=int, default=0, help="how many seeds beside the committed one")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each run")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants", help="where the reports go")
    given = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no mutant {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or list(MUTANTS)
    through = [mutant.name for mutant in chosen if not _all_caught(mutant, given.seeds, given.minutes, given.out)]
    print(f"{len(chosen) - len(through)} of {len(chosen)} mutants caught" + (f"; not: {through}" if through else ""))
    return 1 if through else 0


def _all_caught(mutant: Mutant, seeds: int, minutes: float, out: Path) -> bool:
    caught = [_caught(mutant, seed, minutes, out) for seed in range(SEED, SEED + seeds + 1)]
    return caught[0] and 10 * sum(caught[1:]) >= OF_TEN * seeds


def _caught(mutant: Mutant, seed: int, minutes: float, out: Path) -> bool:
    """Whether a run with this seed breaks a promise."""
    folder, began = out / mutant.name / str(seed), time.monotonic()
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutant-") as source:
        make(mutant, ROOT / "src", Path(source))
        command = [sys.executable, "-m", "chaos", f"--seed={seed}", f"--minutes={minutes:g}"]
        ended = subprocess.run(  # noqa: S603 - our own program
            [*command, f"--source={source}", f"--out={folder}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    told = json.loads(report.read_text(encoding="utf-8"))["broken"] if report.exists() else []
    rules = sorted({broken["rule"] for broken in told})
    said = f"caught: {', '.join(rules)}" if told else "came through"
    if not report.exists():
        said = f"no report: {ended.stderr.strip().splitlines()[-1:]}"
    print(f"{mutant.name}  seed {seed}  {time.monotonic() - began:.0f} s  {said}", flush=True)
    return bool(told)


if __name__ == "__main__":
    sys.exit(main())
