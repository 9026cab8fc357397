"""genflow's client commands as a person runs them: real processes, their two outputs, their exit status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forks import clean_environment
from tests.support.service import GENFLOW

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed for a program."""
        return json.loads(self.out)

    def says(self, words: str) -> None:
        """Fail unless it told a person these words, and no traceback."""
        assert words in self.err, self.err
        assert "Traceback" not in self.err, self.err


class Running:
    """A command that runs; its stderr can be waited for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._err = b""

    async def said(self, words: str) -> None:
        """Wait until stderr holds these words."""
        assert self.process.stderr is not None
        async with asyncio.timeout(LIMIT_S):
            while words.encode() not in self._err:
                more = await self.process.stderr.read(4096)
                assert more, f"it ended without saying {words!r}: {self._err.decode()}"
                self._err += more

    async def end(self) -> Ended:
        """Wait for its end."""
        async with asyncio.timeout(LIMIT_S):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return Ended(self.process.returncode, out.decode(), (self._err + err).decode())


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where commands run: a folder and the service that GENFLOW_URL names."""

    folder: Path
    url: str

    async def start(self, *words: str, **environment: str) -> Running:
        """Start a command."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            GENFLOW, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=self.folder,
            env=clean_environment() | {"GENFLOW_URL": self.url} | environment,
        )  # fmt: skip
        return Running(process)

    async def run(self, *words: str, **environment: str) -> Ended:
        """Run a command to its end."""
        return await (await self.start(*words, **environment)).end()

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[Running]:
        """A command that is killed at the end of the context if it still runs."""
        command = await self.start(*words)
        try:
            yield command
        finally:
            if command.process.returncode is None:
                command.process.kill()
            await command.process.wait()
