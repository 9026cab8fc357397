"""The documentation is whole and current: links lead somewhere, pages are reachable, what the code says is said."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from genflow.cli.exits import Exit
from genflow.failures import CLASS_OF
from genflow.simulator.knobs import Knobs
from genflow.simulator.options import WORDS
from scripts.docs_reference import PAGES, REFERENCE
from tests.support.commands import parse_command
from tests.support.repository import ROOT, relative, repository_files

LINK = re.compile(r"(?<!`)!?\[[^\]\n]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A Markdown page without its code blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Where the page's relative links lead, as written."""
    return [link for link in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    headings = re.findall(r"(?m)^#+ +(.+?) *$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", list(repository_files(".md")), ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            broken.append(f"{link}: nothing there")
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if ".md" in link]
    pages = {page for page in repository_files(".md") if page.is_relative_to(ROOT / "docs")}
    assert sorted(relative(page) for page in pages - seen) == []


def commands_shown(page: Path) -> list[list[str]]:
    """What follows `genflow` in the page's shell blocks, variables before it and a comment or `&` after it left out."""
    blocks = re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    shown = re.compile(r"(?:\w+=(?:\"[^\"]*\"|\S*) +)*(?:\S*/)?genflow +(.+?)[& ]*")
    return [shlex.split(match[1], comments=True) for line in lines if (match := shown.fullmatch(line.strip()))]


@pytest.mark.parametrize("page", [page for page in repository_files(".md") if page.name != "cli.md"], ids=relative)
def test_every_command_shown_is_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("me.jpg", "jobs.jsonl"):
        (tmp_path / file).touch()
    for words in commands_shown(page):
        parse_command(words)


def test_commands_shown_are_found_and_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nA=1 genflow api --hots x  # a comment\n.venv/bin/genflow migrate &\n```\n")
    shown = commands_shown(page)
    assert shown == [["api", "--hots", "x"], ["migrate"]]
    with pytest.raises(typer.TyperException):
        parse_command(shown[0])


def test_every_exit_code_is_documented() -> None:
    page = (REFERENCE / "exit-codes.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", page)] == [status.value for status in Exit]


def test_the_simulator_takes_what_the_how_to_shows() -> None:
    how_to = (ROOT / "docs" / "how-to" / "write-tests-with-the-simulator.md").read_text(encoding="utf-8")
    knobs = [json.loads(body) for body in re.findall(r"curl --json '(.+?)' \S+/simulator/knobs", how_to)]
    assert knobs
    for body in knobs:
        Knobs().set(body)
    assert re.findall(r"(?m)^\| `(\w+)` \|", how_to) == list(WORDS)


@pytest.mark.parametrize("name", PAGES)
def test_pages_made_from_the_code_are_current(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def codes_made(modules: list[ast.Module]) -> set[str]:
    """The codes that are written out where a GenflowError is made.

    That is: directly, by a subclass, or by a function of the same module that passes its first parameter on as code.
    """
    classes = {"GenflowError"}
    for node in (node for module in modules for node in ast.walk(module)):
        if isinstance(node, ast.ClassDef) and classes & set(map(named, node.bases)):
            classes.add(node.name)
    codes: set[str] = set()
    for module in modules:
        nodes = list(ast.walk(module))
        makers = classes | {node.name for node in nodes if isinstance(node, ast.FunctionDef) and makes(node, classes)}
        own = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name in classes]
        calls = [node for node in nodes if isinstance(node, ast.Call) and named(node.func) in makers]
        calls += [
            node
            for each in own
            for node in ast.walk(each)
            if isinstance(node, ast.Call) and named(node.func) == "__init__"
        ]
        first = [call.args[0] for call in calls if call.args]
        codes |= {str(code.value) for code in first if isinstance(code, ast.Constant)}
    return {code for code in codes if re.fullmatch(r"[a-z_]+", code)}


def makes(function: ast.FunctionDef, kinds: set[str]) -> bool:
    """Whether the function makes one of these errors with its own first parameter as the code."""
    return any(
        isinstance(node, ast.Call)
        and named(node.func) in kinds
        and bool(node.args)
        and isinstance(node.args[0], ast.Name)
        and bool(function.args.args)
        and node.args[0].id == function.args.args[0].arg
        for node in ast.walk(function)
    )


def named(expression: ast.expr) -> str:
    """The last name of what is called or derived from."""
    return expression.id if isinstance(expression, ast.Name) else getattr(expression, "attr", "")


def test_every_error_code_is_documented() -> None:
    sources = [path for path in repository_files(".py") if path.is_relative_to(ROOT / "src")]
    made = codes_made([ast.parse(path.read_text(encoding="utf-8")) for path in sources])
    assert {"invalid_workflow", "queue_full", "unsupported_image"} <= made, "the search through the sources is broken"
    documented = set(re.findall(r"(?m)^\| `([a-z_]+)` \|", (REFERENCE / "errors.md").read_text(encoding="utf-8")))
    assert sorted((made | set(CLASS_OF)) - documented) == []
