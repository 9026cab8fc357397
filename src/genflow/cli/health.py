"""`genflow health`: is the service there, or are these servers up. A readiness probe runs it: it imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from genflow.cli.exits import Exit

if TYPE_CHECKING:
    from genflow.settings import ServerSettings

WITHIN_S = 3.0
"""Longest time that one server is waited for, in seconds."""


def health(
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="NAME=URL", help="Look at this ComfyUI server itself, without any service."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask whether the API is alive and ready; with --gpu, whether these servers are up.

    Exit status 0 ready (with --gpu: at least one server is healthy), 1 not ready, 4 unreachable.
    """
    from genflow.cli.talk import run_client

    run_client(_servers(gpu, as_json) if gpu else _health(as_json), as_json=as_json)


async def _servers(gpu: list[str], as_json: bool) -> Exit:
    import asyncio
    from dataclasses import asdict

    from genflow.cli.options import read_settings
    from genflow.cli.talk import print_json
    from genflow.comfy.checkup import look_at, look_line, reached

    servers: dict[str, ServerSettings] = read_settings(gpu=gpu).gpu
    async with reached(servers) as clients:
        looks = await asyncio.gather(*(look_at(client, within_s=WITHIN_S) for client in clients))
    if as_json:
        print_json({"servers": [asdict(look) for look in looks]})
    else:
        for look in looks:
            typer.echo(look_line(look))
    return Exit.OK if any(look.healthy for look in looks) else Exit.NEGATIVE


async def _health(as_json: bool) -> Exit:
    from genflow.cli.client import Refused, connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        await client.get("/healthz")
        try:
            checks: dict[str, Any] = (await client.get("/readyz"))["checks"]
            ready = True
        except Refused as fault:
            if fault.code != "not_ready":
                raise
            checks, ready = fault.details.get("checks", {}), False
        url = client.url
    if as_json:
        print_json({"url": url, "alive": True, "ready": ready, "checks": checks})
    else:
        typer.echo(f"{url}  {'ready' if ready else 'NOT READY'}")
        for name, found in checks.items():
            typer.echo(f"  {name:<10} {found}")
    return Exit.OK if ready else Exit.NEGATIVE
