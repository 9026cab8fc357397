"""`genflow run`: a jobs file to its end in one process, with a transcript on stdout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from genflow.cli.exits import Exit, exit_of_status
from genflow.cli.options import JOBS, MAKING, SHARED, WORKER, with_settings
from genflow.settings import Settings

if TYPE_CHECKING:
    from genflow.fleet.choice import Lengths
    from genflow.intake.jobs_file import Row
    from genflow.worker.telling import Told

JobsFile = Annotated[Path, typer.Argument(metavar="FILE", help="JSONL or CSV, a job a line.", show_default=False)]
WorkflowFile = Annotated[Path | None, typer.Option("--workflow", help="The workflow of rows that name none.")]
TemplateName = Annotated[str | None, typer.Option("--template", help="The template of rows that name no workflow.")]


@with_settings((*SHARED, *MAKING, *JOBS, *WORKER))
def run(
    settings: Settings,
    *,
    file: JobsFile,
    workflow: WorkflowFile = None,
    template: TemplateName = None,
    name: Annotated[str | None, typer.Option(help="The worker's name in the transcript; none = the instance.")] = None,
) -> None:
    """Run the jobs of a file on these servers until each is done or a dead letter, and print what happens.

    The jobs are kept in the database and the data folder: run it again and it goes on where it was. Exit status 3 says
    that there are dead letters.
    """
    from genflow.errors import GenflowError
    from genflow.intake.jobs_file import read_rows

    if not settings.gpu:
        raise typer.BadParameter("a run needs a server: --gpu gpu0=http://127.0.0.1:8188")
    given = settings.model_fields_set
    quiet: dict[str, Any] = {} if "log_level" in given else {"log_level": "error"}
    quiet |= {} if "health_port" in given else {"health_port": 0}
    settings = settings.model_copy(update=quiet)
    import uvloop

    try:
        rows = found_here(settings, file, read_rows(file, workflow=workflow, template=template))
        status = uvloop.run(_run(settings, file, rows, name or settings.instance))
    except GenflowError as error:
        typer.echo(f"genflow: {error.message} [{error.code}]", err=True)
        status = exit_of_status(error.status)
    raise typer.Exit(status)


def found_here(settings: Settings, file: Path, rows: list[Row]) -> list[Row]:
    """The rows with their files found, by the templates of these settings. Raises BadJobsFile."""
    from genflow.cli.sending import kinds_of, over_templates
    from genflow.intake.jobs_file import with_files
    from genflow.templates import open_shelf
    from genflow.templates.template import as_json

    if not over_templates(rows):
        return rows
    shelf = open_shelf(settings.templates, settings.portrait)
    return with_files(file, rows, kinds_of([as_json(template) for template in shelf.values()]))


async def _run(settings: Settings, file: Path, rows: list[Row], name: str) -> Exit:
    from genflow import app
    from genflow.batch_run import Report, run_file
    from genflow.cli import transcript
    from genflow.cli.batch_bar import BatchBar
    from genflow.fleet.choice import choice_line

    app.prepare(settings)
    stopped = await app.until_stopped(lambda: os._exit(Exit.INTERRUPTED))
    with BatchBar(len({row.id or row.line for row in rows})) as bar:

        def say(line: str) -> None:
            with bar.aside():
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

        def told(told: Told) -> None:
            say(transcript.line(told))

        def again(job: UUID) -> None:
            say(transcript.again(job))

        def chosen(server: str, lengths: Lengths) -> None:
            say(choice_line(server, lengths))

        say(transcript.started(name, len(settings.gpu), settings.attempts, settings.timeout_s))
        outcome = await run_file(settings, file.name, rows, Report(told, again, chosen, bar.counted), stopped)
        say(transcript.stopped(name))
        for line in transcript.summary(outcome.acknowledged, outcome.dead, outcome.others, outcome.unfinished):
            say(line)
    if outcome.unfinished:
        return Exit.INTERRUPTED if stopped.is_set() else Exit.NEGATIVE
    return Exit.DEAD_LETTERS if outcome.dead else Exit.OK
