"""`genflow servers`, `genflow workers`, `genflow status`: the fleet and how things stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import click
import typer

from genflow.cli.exits import Exit
from genflow.cli.jobs import AsJson, print_rows

WATCH_S = 2.0
_POLL_S = 0.5

servers = typer.Typer(no_args_is_help=True, help="Look at servers, take them out of the fleet and back.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name, as `servers list` shows it.")]

_COLUMNS = (
    "name",
    "state",
    "healthy",
    "guard",
    "slots",
    "open_submits",
    "waiting_jobs",
    "erasures_left",
    "last_seen_at",
    "reason",
)


@servers.command("list")
def list_servers(
    everything: Annotated[bool, typer.Option("--all", help="Also those that were forgotten.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the servers of the fleet."""
    _go(_list(everything, as_json), as_json)


async def _list(everything: bool, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        found = await client.get("/genflow/v1/servers", {"all": "true"} if everything else None)
    if as_json:
        print_json(found)
    else:
        print_rows(_COLUMNS, found["servers"], narrow=("name", "state", "healthy", "open_submits", "reason"))
    return Exit.OK


@servers.command()
def drain(
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing of ours is there any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a server no new job. What it has goes on."""
    _go(_steer(name, "drain", as_json, wait=wait), as_json)


@servers.command()
def resume(name: Name, as_json: AsJson = False) -> None:
    """End a server's drain or quarantine."""
    _go(_steer(name, "resume", as_json), as_json)


@servers.command()
def forget(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Although a worker saw it healthy a moment ago.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a server as gone for good. Its jobs go elsewhere, and what ran there may run a second time."""
    _go(_steer(name, "forget", as_json, query={"yes": "true"} if yes else None), as_json)


async def _steer(
    name: str, verb: str, as_json: bool, *, query: Mapping[str, str] | None = None, wait: bool = False
) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import note, print_json

    async with connect() as client:
        server = await client.post(f"/genflow/v1/servers/{quote(name)}/{verb}", params=query)
        if wait and server["open_submits"]:
            note(f"{name}: waiting for {server['open_submits']} prompt(s)")
        while wait and server["open_submits"]:
            await asyncio.sleep(_POLL_S)
            listed = (await client.get("/genflow/v1/servers", {"all": "true"}))["servers"]
            server = next(each for each in listed if each["name"] == name)
    if as_json:
        print_json(server)
    else:
        typer.echo(f"{name}: {server['state']}, {server['open_submits']} prompt(s) of ours there")
    return Exit.OK


def workers(as_json: AsJson = False) -> None:
    """List the workers, with the jobs that each holds and the servers that it drives."""
    _go(_workers(as_json), as_json)


async def _workers(as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        found = await client.get("/genflow/v1/workers")
    if as_json:
        print_json(found)
        return Exit.OK
    rows = [each | {"servers": " ".join(each["servers"])} for each in found["workers"]]
    print_rows(("name", "state", "jobs", "servers", "seen_at", "version", "id"), rows, narrow=("name", "state", "jobs"))
    return Exit.OK


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how things stand: queue, servers, workers, what failed lately. Begin here when something is wrong."""
    _go(_status(watch, as_json), as_json)


async def _status(watch: bool, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        while True:
            found = await client.get("/genflow/v1/status")
            if as_json:
                print_json(found)
            else:
                if watch:
                    click.clear()
                for line in status_lines(found):
                    typer.echo(line)
            if not watch:
                return Exit.OK
            await asyncio.sleep(WATCH_S)


def status_lines(found: Mapping[str, Any]) -> list[str]:
    """One screen of the API's status."""
    jobs, hour = found["jobs"], found["last_hour"]
    oldest = found["oldest_waiting_s"]
    since = "" if oldest is None else f", the oldest for {oldest:.0f} s"
    lines = [
        f"queue     {jobs['queued']} queued{since}, {jobs['waiting']} in back-off, {jobs['bound']} bound to a server,"
        f" {jobs['held']} held by workers",
        f"last hour {hour['succeeded']} succeeded, {hour['failed']} failed, {found['ended_per_minute']:g} a minute now",
    ]
    if found["waiting_for_lost_servers"]:
        lines.append(
            f"          {found['waiting_for_lost_servers']} job(s) wait for servers that nobody sees"
            "  → genflow servers list"
        )
    dead = ", ".join(f"{count} {kind}" for kind, count in sorted(hour["dead_letters_by_class"].items()))
    if dead:
        lines.append(f"dead      {dead}  → genflow dead list --since 1h --group reason")
    for server in found["servers"]:
        health = "healthy" if server["healthy"] else "NOT SEEN"
        reason = f" ({server['reason']})" if server["reason"] else ""
        there = f"{server['open_submits']} prompt(s), {server['waiting_jobs']} waiting for it"
        lines.append(f"server    {server['name']}: {server['state']}{reason}, {health}, {there}")
    lines += [f"worker    {each['name']}: {each['state']}, {each['jobs']} job(s)" for each in found["workers"]]
    if not found["workers"]:
        lines.append("worker    NONE  → genflow worker --gpu NAME=URL")
    return lines


def _go(command: Any, as_json: bool) -> None:
    from genflow.cli.talk import run_client

    run_client(command, as_json=as_json)
