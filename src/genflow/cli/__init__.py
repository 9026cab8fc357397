"""The command line, one tree: parsing and printing only.

Exit status: 0 ok, 1 negative answer, 2 usage, 3 dead letters, 4 service unreachable.
"""

from __future__ import annotations

import typer

from genflow.cli import serve
from genflow.cli.simulate import simulate

app = typer.Typer(
    name="genflow",
    help="The durable production service in front of ComfyUI.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(serve.up)
app.command()(serve.api)
app.command()(serve.worker)
app.command()(simulate)
app.command()(serve.migrate)
app.command("settings")(serve.settings_command)


def main() -> None:
    """Entry point of the `genflow` command."""
    app()
