"""A fork server: it has imported genflow once, and each genflow process of a test is forked from it.

The processes that a promise needs would spend most of their processor time on the same imports. A forked process is
a real one: its own memory, pid, environment, folder and signals, and it runs the command's own entry point. What holds
of the installed command itself is tested with that command (tests/support/cli.py).

`python -m tests.support.forks FD` is the server; it ends when the other end of its socket is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol

PRELOADED = (
    "genflow.cli",
    "genflow.app",
    "genflow.api.app",
    "genflow.intake.rabbit",
    "genflow.simulator",
    "uvicorn",
    "uvloop",
)
_REQUEST_BYTES = 128 * 1024


class Handle(Protocol):
    """What a test needs of a process; asyncio's own has it too."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    def send_signal(self, signal: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> int: ...


class Forked:
    """A process that the fork server forked. It tells the status over a pipe, for it alone may wait for the process."""

    def __init__(
        self,
        pid: int,
        stdout: asyncio.StreamReader,
        status: asyncio.StreamReader,
        pipes: Sequence[asyncio.BaseTransport],
    ) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._pipes = pipes
        self._end = asyncio.create_task(self._until_the_end(status))

    def send_signal(self, signal: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        if self.returncode is None:
            os.kill(self.pid, signal)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit status, once it ended; the negative number of the signal that killed it. Read its output before."""
        status = await asyncio.shield(self._end)
        for pipe in self._pipes:
            pipe.close()
        await asyncio.sleep(0)  # they close in the loop's next turn
        return status

    async def _until_the_end(self, status: asyncio.StreamReader) -> int:
        line = await status.readline()
        if not line:
            raise RuntimeError("the fork server died")
        self.returncode = int(line)
        return self.returncode


class ForkServer:
    """The test process's end of its fork server."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests

    async def start(self, arguments: Sequence[str], *, stderr: IO[bytes], cwd: Path, env: Mapping[str, str]) -> Forked:
        """Fork a process that runs `genflow` with these arguments, its standard output in a pipe."""
        request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
        assert len(request) <= _REQUEST_BYTES
        (out, out_end), (status, status_end) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._requests, [request], [out_end, stderr.fileno(), status_end])
        finally:
            os.close(out_end)
            os.close(status_end)
        (out_reader, out_pipe), (status_reader, status_pipe) = await _reader(out), await _reader(status)
        line = await status_reader.readline()
        if not line:
            raise RuntimeError("the fork server died")
        return Forked(int(line), out_reader, status_reader, (out_pipe, status_pipe))


async def _reader(fd: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    return reader, pipe


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of genflow, for a process that gets its own."""
    # Compiling the whole package anew at every start would be a third of a process's start-up.
    dropped = ("GENFLOW_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A fork server that lives as long as the context."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks", str(its.fileno())],
            pass_fds=[its.fileno()],
            env=clean_environment(),
        )
        its.close()
        try:
            yield ForkServer(ours)
        finally:
            ours.close()
            server.wait(30)


def _serve(requests: socket.socket) -> bool:
    """Fork for each request and tell of each end. False in the server, at its end; True in each forked process."""
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the tests
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wake], [], [])
        if wake in ready:
            wake.recv(4096)
            _tell_ends(statuses)
        if requests in ready:
            request, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
            if not request:
                for pid in statuses:  # what a failed test left running
                    os.kill(pid, signal.SIGKILL)
                return False
            out, err, status = fds
            pid = os.fork()
            if pid == 0:
                _become(json.loads(request), out, err)
                return True
            statuses[pid] = status
            os.write(status, b"%d\n" % pid)
            os.close(out)
            os.close(err)


def _tell_ends(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        pipe = statuses.pop(pid)
        with suppress(BrokenPipeError):  # the test did not wait for it
            os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _become(request: dict[str, object], out: int, err: int) -> None:
    """Be, after a fork, as a process that was just started: nothing of the server's is left."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    sys.argv = ["genflow", *request["arguments"]]  # type: ignore[misc]


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a thread does not outlive a fork"
    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        from genflow.cli import main

        main()
