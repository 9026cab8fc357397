"""genflow's command line as a reader, not a runner: whether words that stand in a file would be understood."""

from __future__ import annotations

from typing import Any

import typer

from genflow.cli import app


def parse_command(words: list[str]) -> dict[str, Any]:
    """The parameters that `genflow WORDS…` would run with. Raises typer.TyperException for words that are wrong."""
    command: Any = typer.main.get_command(app)
    name, rest = "genflow", list(words)
    while hasattr(command, "commands"):
        assert rest, f"{name} needs one of {', '.join(command.commands)}"
        name = f"{name} {rest[0]}"
        command = command.commands.get(rest.pop(0))
        assert command is not None, f"there is no command {name}"
    parameters = command.make_context(name, rest).params
    assert isinstance(parameters, dict)
    return parameters
