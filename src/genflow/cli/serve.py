"""The commands that run a process until it is told to stop: `up`, `api`, `worker`, `intake`; and `migrate`."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from genflow.cli.exits import Exit
from genflow.cli.options import API, JOBS, MAKING, RABBIT, SHARED, WORKER, with_settings
from genflow.errors import GenflowError
from genflow.settings import ServerSettings, Settings

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON line when ready.")]


def run(process: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end on uvloop; a refusal ends it with one line and status 4."""
    import uvloop

    try:
        uvloop.run(process)
    except GenflowError as error:
        typer.echo(f"genflow: {error.message} [{error.code}]", err=True)
        raise typer.Exit(Exit.UNREACHABLE) from None


def say(as_json: bool, text: str, **ready: Any) -> None:
    """Say on stdout that the process is ready."""
    sys.stdout.write((json.dumps(ready) if as_json else text) + "\n")
    sys.stdout.flush()


def _end_at_once() -> None:
    os._exit(1)


@with_settings((*SHARED, *API, *MAKING, *JOBS))
def api(settings: Settings, *, as_json: AsJson = False) -> None:
    """Serve the HTTP API. Any number of these share one Postgres and one data folder."""
    run(_api(settings, as_json))


async def _api(settings: Settings, as_json: bool) -> None:
    from genflow import app

    app.prepare(settings)
    stopped = await app.until_stopped(_end_at_once)
    async with app.open_database(settings) as conninfo, app.run_api(settings, conninfo) as url:
        say(as_json, f"genflow API on {url}", ready=url)
        await stopped.wait()


@with_settings((*SHARED, *WORKER, *RABBIT, *JOBS))
def worker(settings: Settings, *, as_json: AsJson = False) -> None:
    """Claim jobs and drive ComfyUI servers. Any number of these share one Postgres and one data folder.

    With --rabbitmq it also takes jobs from a queue of RabbitMQ.
    """
    if not settings.gpu:
        raise typer.BadParameter("a worker needs a server: --gpu gpu0=http://127.0.0.1:8188")
    run(_worker(settings, as_json))


async def _worker(settings: Settings, as_json: bool) -> None:
    from genflow import app

    app.prepare(settings)
    stopped = await app.until_stopped(_end_at_once, grace_s=settings.grace_s)
    async with app.open_database(settings) as conninfo, app.run_worker(settings, conninfo) as (worker_id, page):
        say(
            as_json, f"genflow worker {worker_id}, health on {page}", ready=page, worker=str(worker_id),
            servers=list(settings.gpu),
        )  # fmt: skip
        await stopped.wait()


@with_settings((*SHARED, *RABBIT, *JOBS))
def intake(settings: Settings, *, as_json: AsJson = False) -> None:
    """Take jobs from a queue of RabbitMQ for workers elsewhere. Any number of these share one Postgres."""
    if settings.rabbitmq is None:
        raise typer.BadParameter("an intake needs a broker: --rabbitmq amqp://USER:PASSWORD@HOST/VHOST")
    run(_intake(settings, as_json))


async def _intake(settings: Settings, as_json: bool) -> None:
    from genflow import app

    app.prepare(settings)
    stopped = await app.until_stopped(_end_at_once)
    async with app.open_database(settings) as conninfo, app.run_intake(settings, conninfo) as source:
        say(as_json, f"genflow intake from {source}", ready=source)
        await stopped.wait()


@with_settings((*SHARED, *API, *MAKING, *JOBS, *WORKER, *RABBIT))
def up(
    settings: Settings,
    *,
    simulate: Annotated[int, typer.Option(min=0, max=64, help="Also run this many simulated servers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run everything in one process: Postgres (embedded unless set), the API, and a worker."""
    run(_up(settings, simulate, as_json))


async def _up(settings: Settings, simulate: int, as_json: bool) -> None:
    from genflow import app
    from genflow.simulator import SimulatorOptions, running

    app.prepare(settings)
    stopped = await app.until_stopped(_end_at_once, grace_s=settings.grace_s)
    async with AsyncExitStack() as stack:
        gpus = dict(settings.gpu)
        if simulate:
            servers = await stack.enter_async_context(running(SimulatorOptions(count=simulate)))
            gpus |= {server.name: ServerSettings(url=server.url) for server in servers}
        if not gpus:
            gpus = {"gpu0": ServerSettings(url=_local_comfyui())}
        settings = settings.model_copy(update={"gpu": gpus})
        conninfo = await stack.enter_async_context(app.open_database(settings))
        url = await stack.enter_async_context(app.run_api(settings, conninfo))
        worker_id, page = await stack.enter_async_context(app.run_worker(settings, conninfo))
        addresses = {name: server.url for name, server in gpus.items()}
        named = ", ".join(f"{name} {address}" for name, address in addresses.items())
        say(
            as_json, f"genflow on {url}\nservers: {named}\nworker's health on {page}", ready=url, health=page,
            worker=str(worker_id), servers=addresses,
        )  # fmt: skip
        await stopped.wait()


def _local_comfyui() -> str:
    """A ComfyUI at its usual address; GenflowError `no_server` where none answers."""
    try:
        socket.create_connection(("127.0.0.1", 8188), timeout=1.0).close()
    except OSError:
        raise GenflowError(
            "no_server",
            "no ComfyUI answers at 127.0.0.1:8188; name yours with --gpu gpu0=http://HOST:8188, or try --simulate 2",
            status=503,
        ) from None
    return "http://127.0.0.1:8188"


@with_settings(SHARED)
def migrate(settings: Settings) -> None:
    """Bring the database's schema up to this program."""
    run(_migrate(settings))


async def _migrate(settings: Settings) -> None:
    from genflow import app

    app.prepare(settings)
    async with app.open_database(settings):
        typer.echo("the schema is up to date")


def settings_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every setting in force, with the environment and the file read."""
    from genflow.cli.options import read_settings

    shown = read_settings().model_dump(mode="json")
    for secret in ("database_url", "rabbitmq", "sealing_key"):
        if shown.get(secret):
            shown[secret] = "set, not shown"
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        typer.echo(f"{name} = {json.dumps(value)}")
