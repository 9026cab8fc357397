"""`genflow jobs`: list, show, wait, cancel, delete."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genflow.cli.exits import Exit, Misuse

if TYPE_CHECKING:
    from rich.table import Table

    from genflow.cli.client import Client
    from genflow.cli.following import Sight

PAGE = 200
"""Jobs asked for at a time: the API's most."""

_WIDE = 130
"""Columns of a terminal that show every column of a list."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobIds = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of jobs.", show_default=False)]

jobs = typer.Typer(no_args_is_help=True, help="Look at jobs, wait for them, cancel them, erase them.")


@jobs.command("list")
def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only these: waiting, queued, held, succeeded, failed, canceled, expired."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from genflow.cli.talk import run_client

    run_client(_list(state or [], limit, as_json), as_json=as_json)


async def _list(states: list[str], limit: int, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        query = {"state": ",".join(states)} if states else {}
        found, cursor = await gather(client, "/genflow/v1/jobs", "jobs", query, limit)
    if as_json:
        print_json({"jobs": found, "next_cursor": cursor})
    else:
        columns = ("id", "status", "created_at", "completed_at", "attempts", "takeovers", "resubmits", "error_code")
        print_rows(columns, found, narrow=("id", "status", "created_at", "error_code"))
    return Exit.OK


async def gather(
    client: Client, path: str, name: str, query: dict[str, str], limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Up to `limit` rows of a list that the API tells page by page under `name`, and the cursor to those after them."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < limit:
        more = {"limit": str(min(PAGE, limit - len(found)))} | ({} if cursor is None else {"cursor": cursor})
        page = await client.get(path, query | more)
        found += page[name]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return found, cursor


@jobs.command()
def show(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a job: what was tried where, what ran, and what came out."""
    from genflow.cli.talk import run_client

    run_client(_show(job_id, as_json), as_json=as_json)


async def _show(job_id: str, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        job = await client.get(f"/api/v2/jobs/{job_id}")
        story = await client.get(f"/genflow/v1/jobs/{job_id}")
    if as_json:
        print_json(job | {"story": story})
        return Exit.OK
    shown = story | {"queue_position": job["queue_position"]}
    if shown["error"] is not None:
        shown["error"] = f"{shown['error']['message']} [{shown['error']['code']}]"
    print_fields({name: value for name, value in shown.items() if not isinstance(value, list)})
    for title, rows, columns in (
        ("attempts", story["attempts"], ("no", "server", "started_at", "ended_at", "outcome", "code", "reason")),
        ("submits", story["submits"], ("no", "server", "state", "accepted_at", "ended_at", "executed", "gpu_ms")),
        ("outputs", job["outputs"], ("name", "type", "size_bytes", "url")),
    ):
        if rows:
            typer.echo(f"\n{title}")
            print_rows(columns, rows)
    return Exit.OK


@jobs.command()
def wait(
    job_ids: JobIds,
    out: Annotated[
        Path | None, typer.Option(help="Where the pictures of the one job go; several get -1, -2 … before the ending.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have ended, with their progress."""
    from genflow.cli.talk import run_client

    run_client(_wait(job_ids, out, as_json), as_json=as_json)


async def _wait(job_ids: list[str], out: Path | None, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json, screen
    from genflow.cli.waiting import check_writable, exit_of_jobs, save, wait_for

    if out is not None:
        if len(job_ids) > 1:
            raise Misuse("--out is for one job at a time")
        check_writable(out)
    seen: list[Sight] = []
    console = screen()
    async with connect() as client:
        for job_id in job_ids:
            again = f"genflow jobs wait {job_id}"
            seen.append(await wait_for(client, job_id, console, label=job_id[:8], hint=again))
        ended = [sight.job for sight in seen]
        saved = await save(client, ended[0]["outputs"], out) if out is not None and ended[0]["outputs"] else []
    if as_json:
        print_json({"jobs": ended, "saved": [str(path) for path in saved]})
    else:
        for job in ended:
            reason = f"  {job['error']['message']} [{job['error']['code']}]" if job["error"] else ""
            typer.echo(f"{job['id']}  {job['status']}{reason}")
        for path in saved:
            typer.echo(str(path))
    return exit_of_jobs([job["status"] for job in ended])


@jobs.command()
def cancel(job_ids: JobIds, as_json: AsJson = False) -> None:
    """Cancel jobs: what is pending never runs, what runs is stopped. A job that has ended stays as it is."""
    from genflow.cli.talk import run_client

    run_client(_cancel(job_ids, as_json), as_json=as_json)


async def _cancel(job_ids: list[str], as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    answers: list[dict[str, Any]] = []
    async with connect() as client:
        for job_id in job_ids:
            job = await client.post(f"/api/v2/jobs/{job_id}/cancel")
            answers.append(job)
            if not as_json:
                typer.echo(f"{job['id']}  {job['status']}")
    if as_json:
        print_json({"jobs": answers})
    all_stopped = all(job["status"] in ("canceling", "canceled") for job in answers)
    return Exit.OK if all_stopped else Exit.NEGATIVE


@jobs.command()
def delete(
    job_ids: JobIds,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase jobs: photo, pictures, workflow and the copies on servers. What is not over is canceled first."""
    from genflow.cli.talk import run_client

    run_client(_delete(job_ids, yes, as_json), as_json=as_json)


async def _delete(job_ids: list[str], yes: bool, as_json: bool) -> Exit:
    from genflow.cli.client import Refused, connect
    from genflow.cli.talk import complain, print_json

    if not yes:
        if not sys.stdin.isatty():
            raise Misuse("nobody is there to be asked: say --yes to erase")
        if not typer.confirm(f"Erase {len(job_ids)} job(s) with their photos and pictures for good?", err=True):
            return Exit.NEGATIVE
    answers: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    async with connect() as client:
        for job_id in job_ids:
            try:
                answer = await client.delete(f"/genflow/v1/jobs/{job_id}")
            except Refused as fault:
                if len(job_ids) == 1:
                    raise
                refused.append({"id": job_id} | fault.envelope())
                if not as_json:
                    complain(f"{job_id}: {fault.message} [{fault.code}]")
                continue
            answers.append(answer)
            if not as_json:
                typer.echo(f"{answer['id']}  {_erased(answer)}")
    if as_json:
        print_json({"jobs": answers, "refused": refused})
    return Exit.NEGATIVE if refused else Exit.OK


def _erased(answer: dict[str, Any]) -> str:
    """What was done, and what is left to do."""
    if answer["status"] == "canceling":
        return "canceling: it is erased as soon as it has stopped"
    left = [f"{each['copies']} on {each['server']}" for each in answer["copies_left"]]
    if not answer["files_deleted"]:
        left.insert(0, "its files in the store")
    return "erased" + (f"; soon gone too: {', '.join(left)}" if left else "")


def print_fields(fields: dict[str, Any]) -> None:
    """What is there of one thing, a line a field."""
    for name, value in fields.items():
        if value is None or value == {}:
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{key} = {item}" for key, item in value.items() if item not in (None, ""))
        typer.echo(f"{name.replace('_', ' '):<16} {value}")


def print_rows(columns: tuple[str, ...], rows: list[dict[str, Any]], *, narrow: tuple[str, ...] | None = None) -> None:
    """A table on a terminal, `narrow` where that isn't wide; elsewhere a line a row with tabs, for other programs."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        if console.width < _WIDE:
            columns = narrow or columns
        console.print(_table(columns, [[_for_people(name, row.get(name)) for name in columns] for row in rows]))
        return
    for row in rows:
        cells = ("" if row.get(name) is None else str(row[name]) for name in columns)
        sys.stdout.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def _for_people(name: str, value: Any) -> str:
    """A cell of a table: times are those of the reader's own clock, to the second."""
    if value is None:
        return ""
    if name.endswith("_at"):
        return datetime.fromisoformat(value).astimezone().strftime("%m-%d %H:%M:%S")
    return str(value)


def _table(columns: tuple[str, ...], cells: list[list[str]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(
            name.removesuffix("_at").replace("_", " "), no_wrap=number == 0 or name.endswith("_at"), overflow="fold"
        )
    for line in cells:
        table.add_row(*map(Text, line))
    return table
