"""End servers: our own in order, and what a killed owner left behind on a cluster before a new server starts there.

After kill -9 of an owner the kernel interrupts its server (Linux), which may take a moment; after kill -9 of the
server itself its backends may still write. Both must be gone before the next server opens the cluster. A stale
postmaster.pid or socket lock, whose number was given to another program or is that of a dead process nobody waited
for, would make the next server refuse to start: they are removed, but only once no process is left on the cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from genflow.postgres.place import SOCKET_NAME, unavailable

_FAST_S = 30.0  # a fast shutdown writes a checkpoint first
_IMMEDIATE_S = 5.0


def shut_down(server: subprocess.Popen[bytes]) -> None:
    """Stop our own server: fast, then immediate, then by force. Bounded at about 40 seconds."""
    for how, patience_s in ((signal.SIGINT, _FAST_S), (signal.SIGQUIT, _IMMEDIATE_S), (signal.SIGKILL, _IMMEDIATE_S)):
        if server.poll() is not None:
            return
        server.send_signal(how)
        try:
            server.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


def end(cluster: Path, sockets: Path) -> None:
    """Leave no process on `cluster` and no file naming one that could stop a new server from starting."""
    pid_file = cluster / "postmaster.pid"
    for how, patience_s in ((signal.SIGINT, _FAST_S), (signal.SIGQUIT, _IMMEDIATE_S), (signal.SIGKILL, _IMMEDIATE_S)):
        waited = time.monotonic() + patience_s
        there = processes_on(cluster)
        main = postmaster_pid(pid_file)
        if main in there and how is not signal.SIGKILL:
            _signal_all({main}, how)
        else:  # without their postmaster, backends are no longer part of a server: nothing is lost by killing them
            _signal_all(there, signal.SIGKILL)
        while there and time.monotonic() < waited:
            time.sleep(0.02)
            there = processes_on(cluster)
        if not there:
            for file in (pid_file, sockets / f"{SOCKET_NAME}.lock"):
                file.unlink(missing_ok=True)
            return
    raise unavailable(f"processes {sorted(there)} still use the cluster {cluster}: stop them")


def _signal_all(pids: set[int], how: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue


def postmaster_pid(pid_file: Path) -> int:
    """The number in postmaster.pid; 0 when there is none."""
    try:
        return int(pid_file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return 0


def processes_on(cluster: Path) -> set[int]:
    """PostgreSQL processes of this cluster: by their name and by their working folder, which is the cluster."""
    if not sys.platform.startswith("linux"):
        return _postmaster_by_ps(cluster)
    found = set()
    wanted = cluster.resolve()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                there = os.readlink(f"/proc/{entry.name}/cwd") == str(wanted)
                if there and Path(f"/proc/{entry.name}/comm").read_text().strip() == "postgres":
                    found.add(int(entry.name))
            except OSError:
                continue  # gone meanwhile, or another user's
    return found


def _postmaster_by_ps(cluster: Path) -> set[int]:
    pid = postmaster_pid(cluster / "postmaster.pid")
    if pid <= 0:
        return set()
    answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return {pid} if str(cluster) in answer.stdout else set()
