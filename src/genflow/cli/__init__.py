"""The command line, one tree: parsing and printing only.

Exit statuses stand in exits.py.
"""

from __future__ import annotations

import typer

from genflow.cli import serve
from genflow.cli.batches import batches, enqueue, results
from genflow.cli.check import check
from genflow.cli.dead import dead
from genflow.cli.health import health
from genflow.cli.jobs import jobs
from genflow.cli.keys import keys
from genflow.cli.portrait import portrait
from genflow.cli.run import run
from genflow.cli.servers import servers, status, workers
from genflow.cli.simulate import simulate
from genflow.cli.templates import templates

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
app.command()(serve.intake)
app.command()(simulate)
app.command()(portrait)
app.command()(run)
app.command()(enqueue)
app.command()(results)
app.add_typer(batches, name="batches")
app.add_typer(templates, name="templates")
app.add_typer(jobs, name="jobs")
app.add_typer(dead, name="dead")
app.add_typer(servers, name="servers")
app.add_typer(keys, name="keys")
app.command()(workers)
app.command()(status)
app.command()(check)
app.command()(health)
app.command()(serve.migrate)
app.command("settings")(serve.settings_command)


def main() -> None:
    """Entry point of the `genflow` command."""
    app()
