"""A process from the fork server is like one that was just started: the promises' tests rest on it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.support.forks import Forked, ForkServer


async def begin(forks: ForkServer, folder: Path, *arguments: str, **env: str) -> Forked:
    with (folder / "log").open("wb") as sink:
        return await forks.start(arguments, stderr=sink, cwd=folder, env={"PATH": os.environ["PATH"], **env})


async def output(process: Forked) -> bytes:
    out = await process.stdout.read()
    assert await process.wait() == 0
    return out


def pipes(pid: int) -> list[str]:
    """The pipes that a process holds beside its standard streams."""
    held = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) > 2]
    return [each for each in held if each.startswith("pipe:")]


async def test_it_has_its_own_environment_and_folder(forks: ForkServer, tmp_path: Path) -> None:
    async def settings(**env: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(await output(await begin(forks, tmp_path, "settings", "--json", **env)))
        return shown

    (tmp_path / "genflow.toml").write_text("prefetch = 3\n")
    assert (await settings(GENFLOW_QUEUE_LIMIT="77"))["queue_limit"] == 77
    plain = await settings()
    assert plain["queue_limit"] != 77, "the environment of the process before it was left"
    assert plain["prefetch"] == 3, "the file of its own folder was not read"


async def test_it_ends_with_its_own_status_and_words(forks: ForkServer, tmp_path: Path) -> None:
    process = await begin(forks, tmp_path, "nonsense")
    assert await process.wait() == 2
    assert "No such command" in (tmp_path / "log").read_text()


async def test_it_takes_signals_for_itself(forks: ForkServer, tmp_path: Path) -> None:
    for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        process = await begin(forks, tmp_path, "simulate", "--json")
        assert b"ready" in await process.stdout.readline()
        assert process.returncode is None
        process.send_signal(number)
        assert await process.wait() == status
        assert process.returncode == status


async def test_it_holds_no_pipe_of_another(forks: ForkServer, tmp_path: Path) -> None:
    first = await begin(forks, tmp_path, "simulate", "--json")
    second = await begin(forks, tmp_path, "simulate", "--json")
    await second.stdout.readline()
    assert pipes(second.pid) == []
    for process in (first, second):
        process.kill()
        assert await process.wait() == -signal.SIGKILL
