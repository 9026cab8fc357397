"""Start one PostgreSQL program as another user, bound to its parent's life. Run as a script, never imported.

A fresh interpreter does what can't be done safely between fork and exec of a process with threads: give up root, ask
the kernel (Linux) to interrupt the server when its parent dies, then become the server. The order matters: the
kernel forgets the parent-death signal on a change of user.

    launch.py exec UID GID PARENT PROGRAM ARGS...   become PROGRAM; UID and GID `-` = stay who we are
    launch.py reach UID GID PATH...                 exit 0 if that user may enter or execute every PATH
"""

from __future__ import annotations

import ctypes  # before root is given up: the interpreter's folder may be closed to everybody else
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(uid: str, gid: str) -> None:
    """Give up root for good: no further groups, then the group, then the user."""
    if uid == "-":
        return
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))


def die_with(parent: int) -> None:
    """A fast shutdown (SIGINT) for this process when its parent dies; at once if the parent is dead already."""
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise SystemExit("the process that wanted this server is gone")


def main(verb: str, uid: str, gid: str, *rest: str) -> None:
    """Do what the command line says; see the module's docstring."""
    become(uid, gid)
    if verb == "reach":
        raise SystemExit(0 if all(os.access(path, os.X_OK) for path in rest) else 1)
    parent, program, *arguments = rest
    die_with(int(parent))
    os.execv(program, [program, *arguments])  # noqa: S606 (no shell is what we want)


if __name__ == "__main__":
    main(*sys.argv[1:])
