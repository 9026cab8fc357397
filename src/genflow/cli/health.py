"""`genflow health`: is the service there, and can it do its work."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from genflow.cli.exits import Exit


def health(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask whether the API is alive and ready. Exit status 0 ready, 1 not ready, 4 unreachable."""
    from genflow.cli.talk import run_client

    run_client(_health(as_json), as_json=as_json)


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
