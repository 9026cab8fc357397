"""Writes the reference pages that are made from the code: settings, commands, failpoints, metrics.

`make docs` runs it; tests/unit/test_repository_docs.py keeps the pages current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from genflow.cli import app
from genflow.failpoints import FAILPOINTS
from genflow.settings import Settings
from genflow.telemetry.metrics import DESCRIBED

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- Made from the code by `make docs`. Change it there. -->\n\n"

SETTINGS_INTRO = """\
# Settings

Each setting can stand in a TOML file, in the environment and, where [the command](cli.md) has one, in a flag. A flag
wins over the environment, the environment over the file. The file is `genflow.toml` in the working folder, or the one
that `GENFLOW_CONFIG` names. A value that does not fit is refused at start, and so is a name in the file that no setting
has.

```toml
# genflow.toml
queue_limit = 2000
lease = 20

[gpu]
gpu0 = "http://127.0.0.1:8188"

[gpu.gpu1]
url = "https://gpus.example:8443"
vram = "24GB"
headers = { Authorization = "Bearer …" }

[portrait]
checkpoint = "dreamshaper_8.safetensors"
```
"""

CLI_INTRO = """\
# Commands

Every command takes `--help`. What a command's exit code says stands in [exit codes](exit-codes.md).

"""

FAILPOINTS_INTRO = """\
# Failpoints

Named places in the code where a test can kill, freeze or fail a process, so that a crash lands exactly where it is
meant. They are armed by the setting `failpoints`, and do nothing otherwise:

```sh
GENFLOW_FAILPOINTS="submit.after_intent=kill" genflow worker --gpu gpu0=http://127.0.0.1:8188
```

`kill` is SIGKILL, `freeze` is SIGSTOP (wake the process with `kill -CONT`), `error` raises. `@2` acts on the second
hit instead of the first: `upload.before=freeze@2`. Several are separated by commas.

| failpoint | where it is |
| --- | --- |
"""

METRICS_INTRO = """\
# Metrics

What `/metrics` shows, of the API and of a worker ([how to scrape them](../how-to/monitor.md)). A histogram is stored as
`NAME_bucket`, `NAME_sum` and `NAME_count`. Beside them stand the usual `process_…` metrics of memory, processor time
and open files.

| metric | type | labels | what |
| --- | --- | --- | --- |
"""


def default_of(field: FieldInfo) -> str:
    """The default as a reader would write it; what is found out at start is named by what finds it out."""
    if field.default_factory is not None:
        made_by = field.default_factory.__name__
        return {"dict": "none", "gethostname": "the host's name"}.get(made_by, f"from `{made_by}`")
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value in (None, "", ()):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{int(value)}`" if isinstance(value, float) and value.is_integer() else f"`{value}`"


def choices_of(annotation: Any) -> str:
    """The values that a setting is limited to, as a sentence; empty where it isn't."""
    if get_origin(annotation) is not Literal:
        return ""
    return " One of " + ", ".join(f"`{value}`" for value in get_args(annotation)) + "."


def headings(model: type[BaseModel]) -> dict[str, str]:
    """Field name to the heading comment that it stands under in the model's source, for fields that start a group."""
    found: dict[str, str] = {}
    heading: str | None = None
    for line in inspect.getsource(model).splitlines():
        if comment := re.fullmatch(r" {4}# (.+)", line):
            heading = comment[1]
        elif (field := re.match(r" {4}(\w+): ", line)) and heading is not None:
            found[field[1]] = heading
            heading = None
    return found


def rows(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """One table row a setting, those of nested tables under their dotted names."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from rows(field.annotation, f"{before}{name}.")
            continue
        variable = "GENFLOW_" + f"{before}{name}".upper().replace(".", "__")
        meaning = f"{field.description}{choices_of(field.annotation)}"
        meaning = meaning.replace("|", r"\|")
        yield f"| `{before}{name}` | {default_of(field)} | {meaning} | `{variable}` |"
        for table in get_args(field.annotation):
            if isinstance(table, type) and issubclass(table, BaseModel):
                yield from rows(table, f"{before}{name}.NAME.")


def settings_page() -> str:
    """docs/reference/settings.md."""
    starts = headings(Settings)
    page = [MADE + SETTINGS_INTRO]
    for row in rows(Settings):
        name = row.split("`")[1].split(".")[0]
        if heading := starts.pop(name, None):
            page.append(f"\n## {heading}\n\n| setting | default | meaning | environment |\n| --- | --- | --- | --- |\n")
        page.append(row + "\n")
    return "".join(page)


def said(text: str) -> str:
    """Help as it is shown on a terminal, in Markdown: the markup's escapes and the brackets of defaults taken off."""
    text = re.sub(r"\[default: \((.*?)\)\]", lambda found: f"[default: {found[1]}]" if found[1] else "", text)
    return re.sub(r" {2,}", " ", text.replace("\\[", "[")).strip()


def command_section(command: Any, name: str, depth: int) -> Iterator[str]:
    """A command with its arguments and options, then its subcommands."""
    context = typer.Context(command, info_name=name)
    yield f"{'#' * depth} `{name}`\n\n{said(command.help or '')}\n\n"
    yield f"```sh\n{name} {' '.join(command.collect_usage_pieces(context))}\n```\n\n"
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    yield from (f"- `{flags}`: {said(meaning)}\n" for flags, meaning in records if "--help" not in flags)
    if records:
        yield "\n"
    for below in getattr(command, "commands", {}).values():
        yield from command_section(below, f"{name} {below.name}", depth + 1)


def cli_page() -> str:
    """docs/reference/cli.md."""
    group: Any = typer.main.get_command(app)
    text = MADE + CLI_INTRO
    for command in group.commands.values():
        text += f"- [`genflow {command.name}`](#genflow-{command.name}): {said(command.help).splitlines()[0]}\n"
    sections = (command_section(command, f"genflow {command.name}", 2) for command in group.commands.values())
    return (text + "\n" + "".join(part for section in sections for part in section)).rstrip() + "\n"


def failpoints_page() -> str:
    """docs/reference/failpoints.md."""
    return MADE + FAILPOINTS_INTRO + "".join(f"| `{name}` | {where} |\n" for name, where in FAILPOINTS.items())


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    listed = (
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels) or 'none'} | {each.what} |\n"
        for each in DESCRIBED.values()
    )
    return MADE + METRICS_INTRO + "".join(listed)


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "failpoints.md": failpoints_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    """Write every page."""
    for name, render in PAGES.items():
        (REFERENCE / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
