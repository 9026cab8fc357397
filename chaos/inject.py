"""`python -m chaos.inject PAGE …`: genflow's command in a process whose clock jumps and whose disk fills up when told.

PAGE is a small file shared with the driver: how far CLOCK_BOOTTIME has jumped ahead, and whether the disk is full.
genflow itself is not touched: what is replaced are the calls of Python that it makes. The clock only jumps ahead, as
it does where a machine was suspended; that it never goes back is the kernel's promise.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SHAPE = struct.Struct("d?")


class Page:
    """The shared file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_SHAPE.pack(0.0, False))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SHAPE.size)

    @property
    def ahead_s(self) -> float:
        """Seconds by which the clock has jumped."""
        ahead_s: float = _SHAPE.unpack(self._map[:])[0]
        return ahead_s

    @property
    def full(self) -> bool:
        """Whether no byte can be written to a file."""
        full: bool = _SHAPE.unpack(self._map[:])[1]
        return full

    def jump(self, seconds: float) -> None:
        """Let the clock jump ahead."""
        self._map[:] = _SHAPE.pack(self.ahead_s + seconds, self.full)

    def fill(self, full: bool) -> None:
        """Fill the disk up, or free it again."""
        self._map[:] = _SHAPE.pack(self.ahead_s, full)


def inject(page: Page) -> None:
    """Put the faults between this process and its system."""
    clock, write = time.clock_gettime, os.write

    def clock_gettime(which: int) -> float:
        return clock(which) + (page.ahead_s if which == time.CLOCK_BOOTTIME else 0.0)

    def checked_write(handle: int, data: Buffer, /) -> int:
        if page.full and stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data)

    time.clock_gettime = clock_gettime
    os.write = checked_write


def main() -> None:
    """Run genflow's command with the faults in place."""
    page = Page(Path(sys.argv.pop(1)))
    inject(page)
    sys.argv[0] = "genflow"
    from genflow.cli import main as genflow

    genflow()


if __name__ == "__main__":
    main()
