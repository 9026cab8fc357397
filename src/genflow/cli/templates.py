"""`genflow templates`: what a service can make by parameters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from genflow.cli.exits import Exit
from genflow.cli.jobs import AsJson, print_rows

templates = typer.Typer(no_args_is_help=True, help="Look at the templates and their parameters.")

_COLUMNS = ("name", "kind", "needed", "default", "allowed", "description")


@templates.command("list")
def list_templates(as_json: AsJson = False) -> None:
    """List the templates of a service."""
    from genflow.cli.talk import run_client

    run_client(_list(as_json), as_json=as_json)


async def _list(as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        page = await client.get("/genflow/v1/templates")
    if as_json:
        print_json(page)
    else:
        rows = [
            {"name": each["name"], "parameters": len(each["parameters"]), "description": each["description"]}
            for each in page["templates"]
        ]
        print_rows(("name", "parameters", "description"), rows, narrow=("name", "parameters"))
    return Exit.OK


@templates.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The template's name.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a template's parameters: kind, default, and what is allowed."""
    from genflow.cli.talk import run_client

    run_client(_show(name, as_json), as_json=as_json)


async def _show(name: str, as_json: bool) -> Exit:
    from urllib.parse import quote

    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        template = await client.get(f"/genflow/v1/templates/{quote(name, safe='')}")
    if as_json:
        print_json(template)
    else:
        rows = [_row(parameter) for parameter in template["parameters"]]
        print_rows(_COLUMNS, rows, narrow=("name", "kind", "default", "allowed"))
    return Exit.OK


def _row(parameter: dict[str, Any]) -> dict[str, Any]:
    choices, low, high, step = (parameter[key] for key in ("choices", "low", "high", "step"))
    allowed = ", ".join(choices) if choices else "" if low is None else f"{low:g} to {high:g}"
    if step not in (None, 1):
        allowed += f", multiples of {step}"
    return parameter | {"needed": "yes" if parameter["required"] else "", "allowed": allowed}
