"""Jobs files through a service: `genflow enqueue`, `genflow results`, `genflow batches`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from genflow.cli.exits import Exit, Misuse
from genflow.cli.jobs import AsJson, print_rows
from genflow.cli.options import read_settings
from genflow.cli.run import JobsFile, TemplateName, WorkflowFile

if TYPE_CHECKING:
    from genflow.cli.client import Client
    from genflow.intake.jobs_file import FileJob, Row
    from genflow.settings import Settings

PAGE = 200
Given = tuple[Path, Path | None, str | None]
"""A jobs file, and the workflow and the template of rows that name none."""

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.", show_default=False)]

batches = typer.Typer(no_args_is_help=True, help="Look at batches, pause them, go on, retry what failed.")

_COLUMNS = ("id", "name", "state", "rows", "queued", "running", "succeeded", "failed", "canceled", "expired")
_HEAD = ("id", "job", "status", "server", "attempts", "files", "queued_s", "job_s", "attempt_s", "reason")


def enqueue(
    file: JobsFile,
    workflow: WorkflowFile = None,
    template: TemplateName = None,
    name: Annotated[str | None, typer.Option(help="The batch's name; none = the file's.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Rows whose job failed become new jobs, as the file says them now.")
    ] = False,
    rabbitmq: Annotated[
        str | None,
        typer.Option(
            help="Publish the jobs to this RabbitMQ instead, amqp(s)://USER:PASSWORD@HOST/VHOST; with --queue alone, to"
            " the one that GENFLOW_RABBITMQ names.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="The queue on RabbitMQ; `renders` unless set.")] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue the jobs of a file, all of them or none. The same file again enqueues nothing."""
    from genflow.cli.talk import run_client

    if rabbitmq is not None or queue is not None:
        if retry_failed or name is not None:
            raise typer.BadParameter("--name and --retry-failed are for a service, and mean nothing to RabbitMQ")
        flags = {"rabbitmq": rabbitmq, "rabbitmq_queue": queue}
        settings = read_settings(**{name: value for name, value in flags.items() if value is not None})
        if template is not None:
            raise typer.BadParameter("--template is for a service; to RabbitMQ go jobs with their workflows")
        run_client(_publish(file, workflow, settings, as_json), as_json=as_json)
    rows = (file, workflow, template)
    run_client(_enqueue(rows, name or file.name, retry_failed, as_json), as_json=as_json)


async def _enqueue(given: Given, name: str, retry_failed: bool, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.sending import MAKING_S, found_rows, read_rows, send_files
    from genflow.cli.talk import print_json

    read = read_rows(*given)
    async with connect() as client:
        rows = await found_rows(client, given[0], read)
        body = "\n".join(_lines(rows, await send_files(client, rows))).encode()
        query = {"name": name, "retry_failed": "true" if retry_failed else "false"}
        batch = await client.post("/genflow/v1/batches", data=body, params=query, answer_s=MAKING_S)
    if as_json:
        print_json(batch)
    else:
        typer.echo(f"batch {batch['id']}: {_counted(batch)}")
    return Exit.OK


async def _publish(file: Path, workflow: Path | None, settings: Settings, as_json: bool) -> Exit:
    from genflow.cli.client import Refused
    from genflow.cli.talk import print_json
    from genflow.errors import GenflowError
    from genflow.intake.rabbit_broker import place_of, publish

    if settings.rabbitmq is None:
        raise Misuse("which RabbitMQ? Say --rabbitmq amqp://USER:PASSWORD@HOST/VHOST, or set GENFLOW_RABBITMQ")
    jobs = _read(file, workflow)
    try:
        await publish(settings.rabbitmq, settings.rabbitmq_queue, jobs)
    except GenflowError as error:
        raise Refused(error.status, error.code, error.message, error.details or {}) from None
    place = place_of(settings.rabbitmq)
    if as_json:
        print_json({"published": len(jobs), "queue": settings.rabbitmq_queue, "broker": place})
    else:
        typer.echo(f"{len(jobs)} messages confirmed by {place}, in the queue {settings.rabbitmq_queue}")
    return Exit.OK


def _read(file: Path, workflow: Path | None) -> list[FileJob]:
    from genflow.errors import GenflowError
    from genflow.intake.jobs_file import read_jobs_file

    try:
        return read_jobs_file(file, workflow=workflow)
    except GenflowError as error:
        raise Misuse(error.message) from None


def _lines(rows: list[Row], assets: dict[str, UUID]) -> list[str]:
    """The rows with their workflows in them, at their lines, so that a refusal names the line of the file."""
    from genflow.intake.template_rows import TemplateRow, sent

    lines = [""] * max(row.line for row in rows)
    for row in rows:
        about = {
            "id": None if row.id is None else str(row.id),
            "set": sent(row, assets) if isinstance(row, TemplateRow) else row.values,
            "priority": row.priority,
            "metadata": row.metadata,
        } | ({"template": row.template} if isinstance(row, TemplateRow) else {})
        text = json.dumps(about)
        if not isinstance(row, TemplateRow):
            text = f'{text[:-1]}, "workflow": {" ".join(row.workflow.splitlines())}}}'
        lines[row.line - 1] = text
    return lines


def results(
    what: Annotated[str, typer.Argument(metavar="FILE|BATCH", help="A jobs file or a batch's id.", show_default=False)],
    workflow: WorkflowFile = None,
    template: TemplateName = None,
    out: Annotated[Path | None, typer.Option(help="Where the CSV goes; none = stdout.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Read the data folder of a `genflow run` instead of asking a service.")
    ] = None,
) -> None:
    """Write what became of each row as CSV. It may be read while the batch still runs."""
    from genflow.cli.talk import run_client

    run_client(_results(what, workflow, template, out, store), as_json=False)


async def _results(
    what: str, workflow: Path | None, template: str | None, out: Path | None, store: Path | None
) -> Exit:
    try:
        batch = UUID(what)
    except ValueError:
        batch = await _batch_of((Path(what), workflow, template), store)
    rows: list[dict[str, Any]] = []
    source = _from_service(batch) if store is None else _from_store(store, batch)
    async with source as found:
        async for row in found:
            rows.append(row)
    if out is None:
        _write(rows, sys.stdout)
    else:
        part = out.with_name(out.name + ".part")  # a reader never sees half a file
        with part.open("w", newline="") as file:
            _write(rows, file)
        part.replace(out)
    return Exit.OK


async def _batch_of(given: Given, store: Path | None) -> UUID:
    """The batch that a jobs file is. Misuse where only the service knows what its rows are called."""
    from genflow.cli.client import connect
    from genflow.cli.run import found_here
    from genflow.cli.sending import found_rows, over_templates, read_rows
    from genflow.queue.batches import batch_id

    rows = read_rows(*given)
    if over_templates(rows) and store is not None:
        rows = found_here(read_settings(data=store), given[0], rows)
    elif over_templates(rows):
        async with connect() as client:
            rows = await found_rows(client, given[0], rows)
    ids = [row.id for row in rows if row.id is not None]
    if len(ids) < len(rows):
        raise Misuse("rows that name a file by its asset's id get their own ids in the service: give the batch's id")
    return batch_id(ids)


@asynccontextmanager
async def _from_service(batch: UUID) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    from genflow.cli.client import connect

    async with connect() as client:
        yield _pages(client, batch)


async def _pages(client: Client, batch: UUID) -> AsyncIterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        query = {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
        page = await client.get(f"/genflow/v1/batches/{batch}/rows", query)
        for row in page["rows"]:
            yield row
        cursor = page["next_cursor"]
        if cursor is None:
            return


@asynccontextmanager
async def _from_store(store: Path, batch: UUID) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    from genflow.batch_run import stored_rows
    from genflow.cli.options import read_settings
    from genflow.errors import GenflowError

    try:
        async with stored_rows(read_settings(data=store, log_level="error"), batch) as rows:
            yield rows
    except GenflowError as error:
        raise Misuse(error.message) from None


def _write(rows: list[dict[str, Any]], file: Any) -> None:
    """The rows as CSV: their values a column each, their files as NAME:SHA256:BLAKE3 with spaces between."""
    values = sorted({name for row in rows for name in row["set"]})
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_HEAD[:2], *values, *_HEAD[2:]])
    for row in rows:
        files = " ".join(f"{each['node']}-{each['name']}:{each['sha256']}:{each['blake3']}" for each in row["files"])
        writer.writerow(
            [
                row["id"], row["id"][:8], *(_cell(row["set"].get(name)) for name in values), row["status"],
                row["server"], row["attempts"], files, *(_seconds(row[name]) for name in _HEAD[6:9]), row["reason"],
            ]
        )  # fmt: skip


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else value


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@batches.command("list")
def list_batches(
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="At most this many.")] = 20, as_json: AsJson = False
) -> None:
    """List batches, newest first."""
    from genflow.cli.talk import run_client

    run_client(_list(limit, as_json), as_json=as_json)


async def _list(limit: int, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        page = await client.get("/genflow/v1/batches", {"limit": str(limit)})
        found = [await client.get(f"/genflow/v1/batches/{batch['id']}") for batch in page["batches"]]
    if as_json:
        print_json({"batches": found})
    else:
        print_rows(_COLUMNS, found, narrow=("id", "name", "state", "rows", "succeeded", "failed"))
    return Exit.OK


@batches.command()
def show(batch: BatchId, as_json: AsJson = False) -> None:
    """Show how a batch's rows stand, how fast it goes, and how long it still takes."""
    _act(batch, None, as_json)


@batches.command()
def pause(batch: BatchId, as_json: AsJson = False) -> None:
    """Begin nothing more of a batch. What runs goes on."""
    _act(batch, "pause", as_json)


@batches.command()
def resume(batch: BatchId, as_json: AsJson = False) -> None:
    """Go on with a paused batch."""
    _act(batch, "resume", as_json)


@batches.command()
def retry(batch: BatchId, as_json: AsJson = False) -> None:
    """Make a new job of each dead letter of a batch. The dead letters stay, marked."""
    from genflow.cli.dead import change
    from genflow.cli.talk import run_client

    body = {"dry_run": False, "again": False}
    run_client(change("requeue", [], {"batch": batch}, False, body, as_json), as_json=as_json)


def _act(batch: str, verb: str | None, as_json: bool) -> None:
    from genflow.cli.talk import run_client

    run_client(_acted(batch, verb, as_json), as_json=as_json)


async def _acted(batch: str, verb: str | None, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    path = f"/genflow/v1/batches/{batch}"
    async with connect() as client:
        shown = await (client.get(path) if verb is None else client.post(f"{path}/{verb}"))
    if as_json:
        print_json(shown)
        return Exit.OK
    typer.echo(f"batch {shown['id']} ({shown['name']}): {shown['state']}, {_counted(shown)}")
    left = shown["seconds_left"]
    typer.echo(f"{shown['rows_per_minute']:g} rows a minute" + ("" if left is None else f", {left:g} s left"))
    return Exit.OK


def _counted(batch: dict[str, Any]) -> str:
    told = [f"{batch[name]} {name}" for name in _COLUMNS[4:] if batch[name]]
    return f"{batch['rows']} rows" + (f" ({', '.join(told)})" if told else "")
