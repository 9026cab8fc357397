"""Programs of clients, run as their users would."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.repository import ROOT

TYPESCRIPT = Path(__file__).parent / "typescript"
CLIENTS = ROOT / "examples" / "clients"


async def said_by(*command: str | Path, env: Mapping[str, str] | None = None, within_s: float = 60.0) -> str:
    """What a client's program printed; fails with its last words where it ended badly."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMFY_", "GENFLOW_"))}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=clean | dict(env or {}),
    )
    out, err = await asyncio.wait_for(process.communicate(), within_s)
    assert process.returncode == 0, f"{command}: {process.returncode}\n{out.decode()}\n{err.decode()}"
    return out.decode()


def node() -> Path:
    """Node's program, which the lock brings."""
    return Path(sys.executable).parent / "node"


def is_here(program: str) -> bool:
    """Whether this machine has the distribution's program."""
    return shutil.which(program) is not None


def system_program(program: str) -> str:
    """Where the distribution's program is, PHP or Chromium."""
    found = shutil.which(program)
    assert found, f"scripts/system_program.sh {program} brings it"
    return found
