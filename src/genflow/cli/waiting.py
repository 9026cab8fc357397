"""Wait for jobs and fetch their pictures, with progress on the screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from genflow.cli.bars import Bars
from genflow.cli.client import Client, Patience
from genflow.cli.exits import Exit, Misuse
from genflow.cli.following import Sight, follow
from genflow.cli.talk import note


async def wait_for(client: Client, job_id: str, console: Console, *, label: str, hint: str) -> Sight:
    """Show a job's progress until its end; its last sight. Ctrl-C says that the job goes on, and `hint` how to look."""
    sight: Sight | None = None
    try:
        with Bars(console, label) as bars:
            async for sight in follow(client, job_id):
                bars.show(sight)
    except asyncio.CancelledError:
        note(f"\njob {job_id} goes on without this command; look at it with: {hint}")
        raise
    if sight is None:
        raise RuntimeError("a job that is followed is seen at least once")
    return sight


def exit_of_job(status: str) -> Exit:
    """The exit status for one job's end."""
    return Exit.OK if status == "succeeded" else Exit.NEGATIVE


def exit_of_jobs(statuses: list[str]) -> Exit:
    """The exit status for the ends of several jobs: dead letters among them have a status of their own."""
    if len(statuses) == 1:
        return exit_of_job(statuses[0])
    if "failed" in statuses:
        return Exit.DEAD_LETTERS
    return max(map(exit_of_job, statuses), default=Exit.OK)


def check_writable(out: Path) -> None:
    """Misuse unless a file can be made beside `out`: better before the run than after it."""
    if out.is_dir():
        raise Misuse(f"{out} is a folder; --out takes the name of a file")
    if not out.parent.is_dir():
        raise Misuse(f"the folder {out.parent} for {out.name} does not exist")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise Misuse(f"the folder {out.parent} can't be written to")


def names_for(out: Path, outputs: list[dict[str, Any]]) -> list[Path]:
    """Where the pictures go: `out` itself for one; `out` with -1, -2 … for several, each with its own kind's ending."""
    if len(outputs) == 1:
        return [out]
    return [
        out.with_name(f"{out.stem}-{number}{Path(output['name']).suffix or out.suffix}")
        for number, output in enumerate(outputs, 1)
    ]


async def save(client: Client, outputs: list[dict[str, Any]], out: Path) -> list[Path]:
    """Fetch the pictures of a job. A file that is there already is replaced by a whole picture or not at all.

    Raises Misuse when a file can't be written, Refused or Unreachable when a picture can't be had.
    """
    names = names_for(out, outputs)
    for output, name in zip(outputs, names, strict=True):
        await _fetch(client, output, name)
    return names


async def _fetch(client: Client, output: dict[str, Any], name: Path) -> None:
    patience = Patience()
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=name.parent, prefix=f".{name.name}.", delete=False) as file:
            part = Path(file.name)
            await patience.through(lambda: client.download(f"/api/v2/assets/{output['id']}/content", file))
        part.chmod(0o666 & ~_umask())
        part.replace(name)
    except OSError as error:
        raise Misuse(f"{name} can't be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
