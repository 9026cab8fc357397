"""How the client commands speak: results on stdout, everything else on stderr, one way to end."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import typer

from genflow.cli.exits import Exit, Misuse, exit_of_status

if TYPE_CHECKING:
    from rich.console import Console


def run_client(command: Coroutine[Any, Any, Exit], *, as_json: bool) -> None:
    """Run a client command to its exit status. A refusal is one line; with `as_json`, the API's envelope on stdout."""
    from genflow.cli.client import Refused, Unreachable

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a prompt may hold what this terminal's encoding can't say
    try:
        status = asyncio.run(command)
    except Refused as fault:
        if as_json:
            print_json(fault.envelope())
        else:
            again = "" if fault.retry_after_s is None else f"; try again in {fault.retry_after_s:g} s"
            complain(f"{fault.message}{again} [{fault.code}]")
        status = exit_of_status(fault.status)
    except Unreachable as fault:
        complain(f"{fault}; GENFLOW_URL names the address")
        status = Exit.UNREACHABLE
    except Misuse as fault:
        complain(str(fault))
        status = Exit.USAGE
    except KeyboardInterrupt:
        status = Exit.INTERRUPTED
    sys.stdout.flush()  # a reader that left early is noticed here, not while Python ends
    raise typer.Exit(status)


def print_json(value: Any) -> None:
    """A result for a program."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def complain(text: str) -> None:
    """What went wrong, on stderr."""
    typer.echo(f"genflow: {text}", err=True)


def note(text: str) -> None:
    """What is worth knowing beside the result, on stderr."""
    typer.echo(text, err=True)


def screen() -> Console:
    """Where progress is shown."""
    from rich.console import Console

    return Console(stderr=True)
