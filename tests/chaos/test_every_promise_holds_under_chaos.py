"""Three minutes of faults, drawn from the committed seed, and no promise broken: `make chaos`, as CI runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from chaos.__main__ import SEED
from chaos.plan import FAULTS, plan
from tests.support.rabbit import programs
from tests.support.repository import ROOT

LIMIT_S = 600.0


@pytest.mark.timeout(LIMIT_S + 60)
def test_every_promise_holds_under_chaos() -> None:
    out = ROOT / "out" / "chaos"
    ended = subprocess.run(
        [sys.executable, "-m", "chaos", f"--out={out}"], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-5_000:]
    told = json.loads((out / "report.json").read_text())
    assert (told["seed"], told["broken"], told["lost"]) == (SEED, [], 0)
    struck = {kind.split()[0] for kind in told["faults"]}
    assert struck >= {kind for kind in FAULTS if kind != "broker" or programs()}, "every kind of fault struck"
    drawn = plan(SEED, told["minutes"], broker=programs() is not None)
    assert told["jobs"] >= len(drawn.wishes) * 0.9, "the clients had their jobs"
    assert told["runs"] >= told["ends"]["succeeded"] > told["jobs"] / 2
