"""House rules: small modules, rooms that say what they are for, locks without addresses, nothing of one machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import genflow
from tests.support.repository import ROOT, relative, repository_files

LOCKS = ("requirements.lock", "requirements-dev.lock")
MAX_LINES = 500


def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(lock: str) -> dict[str, str]:
    """Package to release in a lock, and the hashes checked on the way."""
    pins: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8")):
        pin = re.match(r"([a-z0-9.-]+)(?:\[[a-z0-9,-]+\])?==(\S+)", entry)
        assert pin, f"{lock}: not one release of one package: {entry.splitlines()[0]}"
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), f"{lock}: {pin[1]} has no hash"
        pins[pin[1]] = pin[2]
    return pins


def package_name(requirement: str) -> str:
    """The normalised name of a requirement."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[._-]+", "-", name[0]).lower()


def test_locks_name_no_address() -> None:
    for lock in LOCKS:
        found = re.findall(
            r"(?im)^.*(?:://|--(?:extra-)?index|--find-links|--trusted-host).*$", (ROOT / lock).read_text()
        )
        assert found == [], f"{lock} must install from whatever index the machine uses"


def test_locks_hold_every_dependency_once() -> None:
    product, tools = (locked(lock) for lock in LOCKS)
    declared = project()["project"]["dependencies"] + project()["dependency-groups"]["build"]
    assert [each for each in declared if package_name(each) not in product] == [], "run `make lock`"
    assert [each for each in project()["dependency-groups"]["dev"] if package_name(each) not in tools] == []
    differing = {name: (release, tools.get(name)) for name, release in product.items() if tools.get(name) != release}
    assert differing == {}, "both locks must agree, so that what is tested is what is shipped"


def test_no_module_has_two_jobs() -> None:
    long = {
        relative(path): lines
        for path in repository_files(".py", ".sql", ".sh")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MAX_LINES
    }
    assert long == {}, f"a module of more than {MAX_LINES} lines has two jobs"


def test_every_room_says_what_it_is_for() -> None:
    silent = [
        relative(path)
        for path in repository_files(".py")
        if path.name == "__init__.py"
        and path.is_relative_to(ROOT / "src")
        and len(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "") < 20
    ]
    assert silent == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in repository_files(".py") if path.is_relative_to(ROOT / "src" / "genflow")}
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_nothing_of_one_machine_or_registry() -> None:
    # Homes of people, and the hosts of package indexes and mirrors; an image's own folders (/data, /opt) are fine.
    machine = re.compile(r"(?<![\w.<-])/(?:root|work|Users)/\w|/home/(?!genflow\b)\w")
    registry = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|security\.debian\.org")
    found = [
        f"{relative(path)}:{number}: {line.strip()[:120]}"
        for path in repository_files(".py", ".md", ".toml", ".sql", ".sh", ".yaml", ".lock", ".json", "")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if machine.search(line) or registry.search(line)
    ]
    assert found == []


def test_version_is_said_once_and_the_changelog_knows_it() -> None:
    version = project()["project"]["version"]
    assert genflow.__version__ == version
    headings = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert headings[0] == version, "the changelog opens with the version that is being made"


def test_the_wheel_holds_every_file_of_the_product(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    assert packed == {path.relative_to(source).as_posix() for path in repository_files() if source in path.parents}


def test_ci_runs_what_a_desk_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "exec make check test"]


def test_scripts_can_be_run_and_parse() -> None:
    for path in [*repository_files(".sh"), ROOT / ".ci" / "run"]:
        assert os.access(path, os.X_OK), f"{relative(path)} is not executable"
        assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")
        subprocess.run(["bash", "-n", path], check=True)


def test_make_help_names_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"(?m)^\.PHONY: (.+)$", makefile)
    assert phony
    answer = subprocess.run(["make", "-s"], cwd=ROOT, check=True, capture_output=True, text=True)
    listed = re.findall(r"(?m)^  make (\w+)  *\S", answer.stdout)
    assert sorted(listed) == sorted(phony[1].split())
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in listed if name not in ("help", "install") and f"`make {name}" not in contributing] == []


def test_every_logged_error_ends_with_the_command_to_type() -> None:
    """Whoever reads it at three in the morning needs no page to go on."""
    calls = [
        (path, node)
        for path in repository_files(".py")
        if path.is_relative_to(ROOT / "src")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("error", "exception", "critical")
        and ast.unparse(node.func.value) in ("log", "self._log")
    ]
    assert len(calls) >= 10, "the search through the sources is broken"
    without = [
        f"{relative(path)}:{node.lineno}"
        for path, node in calls
        if not node.keywords or node.keywords[-1].arg != "next"
    ]
    assert without == []
