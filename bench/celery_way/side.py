"""The Celery way from outside: its workers as processes, and a client that sends tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu.exceptions import OperationalError

from bench.celery_way import app as way
from tests.support.repository import ROOT
from tests.support.service import until

PROCESSES = 2
"""Tasks at a time of each worker: one runs, the next waits on the server."""


class CeleryWorker:
    """One worker: its main process and the processes of its pool."""

    def __init__(self, name: str, broker: str, comfy: str, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._environment = os.environ | {
            "BROKER_URL": broker, "COMFY_URL": comfy, "STORE": str(folder / "celery"), "PYTHONPATH": f"{ROOT}",
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its main process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; `ready` tells when it takes tasks."""
        words = ["worker", "--concurrency", str(PROCESSES), "--hostname", f"{self.name}@%h", "--loglevel", "info"]
        command = [sys.executable, "-m", "celery", "--app", "bench.celery_way.app", *words]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=self._environment, start_new_session=True
            )

    async def ready(self) -> None:
        """Wait until it takes tasks."""
        await until(lambda: b" ready." in self._log.read_bytes(), f"{self.name} is ready", 60)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, as the end of a container or a frozen machine does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(30)

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2_000:]


class CeleryClient:
    """Sends tasks and sees when their pictures are stored."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._store = folder / "celery"
        self._store.mkdir(exist_ok=True)
        self._app = way.settings(Celery(broker=broker))

    def send(self, job: str, workflow: Mapping[str, Any]) -> bool:
        """Send one task; whether the broker has confirmed it."""
        try:
            self._app.send_task(way.TASK, args=[job, workflow], ignore_result=True)
        except (OperationalError, OSError):
            return False
        return True

    def done(self, job: str) -> float | None:
        """When the job's pictures were stored, in seconds of the wall clock; None while they are not."""
        try:
            return (self._store / job / way.DONE).stat().st_mtime
        except FileNotFoundError:
            return None

    async def stored(self, job: str, within_s: float = 60.0) -> float:
        """Wait until the pictures are stored; when that was."""
        await until(lambda: self.done(job) is not None, f"the pictures of {job}", within_s, 0.005)
        when = self.done(job)
        assert when is not None
        return when

    async def picture(self, workflow: Mapping[str, Any]) -> float:
        """One job from its submit to its stored picture; when it was stored."""
        job = str(uuid4())
        if not await asyncio.to_thread(self.send, job, workflow):
            raise SystemExit("the broker took no task")
        return await self.stored(job)

    def close(self) -> None:
        """Close its connections."""
        self._app.close()


@contextmanager
def celery_workers(broker: str, servers: Mapping[str, str], folder: Path) -> Iterator[list[CeleryWorker]]:
    """A worker for each server, by name and address; all are killed at the end."""
    workers = [CeleryWorker(f"celery-{name}", broker, url, folder) for name, url in servers.items()]
    try:
        for worker in workers:
            worker.start()
        yield workers
    finally:
        for worker in workers:
            worker.kill()
