"""What a benchmark runs on, read when it begins."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def facts() -> dict[str, str]:
    """Cores, memory, system, Python and the load of the last minute, in the words of the page."""
    return {
        f"{os.cpu_count()} cores": _processor(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB",
        platform.system(): platform.release().split("-")[0],
        platform.python_implementation(): platform.python_version(),
        "load when it began": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"({names[0]})" if names else f"({platform.machine()})"


def cpu_seconds(pid: int) -> float:
    """Processor seconds that a process, and all that it started, have taken so far; of one that is gone, 0."""
    return sum(_ticks(Path(f"/proc/{each}/stat")) for each in family(pid)) / os.sysconf("SC_CLK_TCK")


def _ticks(stat: Path) -> int:
    """Its own time, and that of its children that have ended and were waited for."""
    try:
        fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(fields[at]) for at in (11, 12, 13, 14))


def family(pid: int) -> list[int]:
    """The process and all that descend from it and live."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        children = Path(f"/proc/{each}/task/{each}/children")
        try:
            waiting += [int(child) for child in children.read_text(encoding="utf-8").split()]
        except OSError:
            continue  # it is gone
    return found
