"""Processes that own or share an embedded server, to be stopped and killed by a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genflow.postgres.leftovers import processes_on
from tests.support.waiting import until

_PROGRAM = """
import json, sys
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from genflow.errors import GenflowError
from genflow.postgres.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), state=Path(sys.argv[2]))
try:
    conninfo = server.start()
except GenflowError as error:
    print(json.dumps({"error": error.message}), flush=True)
    sys.exit(1)
print(json.dumps({"conninfo": conninfo, "owns": server.owns}), flush=True)
for line in sys.stdin:
    print(json.dumps({"owns": server.owns}), flush=True)
server.stop()
"""


def cluster_of(folder: Path) -> Path:
    """Where the cluster of `folder`/data lies."""
    place = json.loads((folder / "data" / "postgres" / "place.json").read_text())
    return Path(place["cluster"] or folder / "data" / "postgres" / "cluster")


class Owner:
    """One such process. `ready()` waits for its first word."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder / "data"), str(folder / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> str:
        """Its conninfo, once it has one."""
        answer = self._line()
        assert "conninfo" in answer, answer
        return str(answer["conninfo"])

    def owns(self) -> bool:
        """Whether it runs the server now."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return bool(self._line()["owns"])

    def kill(self) -> None:
        """SIGKILL, as the kernel would."""
        self.process.kill()
        self.process.wait(30)

    def leave(self) -> None:
        """End in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def _line(self) -> dict[str, object]:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline() or "{}")
        assert isinstance(found, dict)
        return found


@contextmanager
def owners(folder: Path, count: int) -> Iterator[list[Owner]]:
    """That many processes on one data folder, started at once; those still there at the end are killed.

    Returns only when no process of a server is left there either.
    """
    started = [Owner(folder) for _ in range(count)]
    try:
        yield started
    finally:
        for owner in started:
            owner.kill()
            for pipe in (owner.process.stdin, owner.process.stdout):
                assert pipe is not None
                pipe.close()
        if (folder / "data" / "postgres" / "place.json").exists():
            until(lambda: not processes_on(cluster_of(folder)), "the end of the killed owners' server")
