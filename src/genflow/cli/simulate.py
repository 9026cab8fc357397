"""`genflow simulate`: simulated ComfyUI servers, several in one process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from genflow.errors import GenflowError

if TYPE_CHECKING:
    from genflow.simulator import SimulatorOptions

Number = TypeVar("Number", int, float)


def simulate(
    count: Annotated[int, typer.Option(min=1, max=64, envvar="GENFLOW_COUNT", help="How many servers.")] = 1,
    host: Annotated[str, typer.Option(envvar="GENFLOW_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="GENFLOW_PORT", help="First port; 0 takes free ones.")
    ] = 0,
    name: Annotated[str, typer.Option(envvar="GENFLOW_NAME", help="Servers are called NAME0, NAME1, …")] = "sim",
    script: Annotated[
        str, typer.Option(envvar="GENFLOW_SCRIPT", help="One word per prompt: ok 500 invalid error oom drop hang slow.")
    ] = "",
    seconds_per_step: Annotated[
        float, typer.Option(min=0, envvar="GENFLOW_SECONDS_PER_STEP", help="Time of one sampler step.")
    ] = 0.1,
    seconds_per_megapixel: Annotated[
        float, typer.Option(min=0, envvar="GENFLOW_SECONDS_PER_MEGAPIXEL", help="Time of other nodes per megapixel.")
    ] = 0.2,
    swap_seconds: Annotated[
        float, typer.Option(min=0, envvar="GENFLOW_SWAP_SECONDS", help="Time of loading another checkpoint.")
    ] = 0.0,
    speed: Annotated[
        str,
        typer.Option(envvar="GENFLOW_SPEED", help="2 is twice as fast; one for all servers, or one for each: 1,1,2,4."),
    ] = "1",
    vram: Annotated[
        str, typer.Option(envvar="GENFLOW_VRAM", help="Bytes of GPU memory; one for all servers, or one for each.")
    ] = str(24 * 1024**3),
    seed: Annotated[int, typer.Option(envvar="GENFLOW_SEED", help="Makes every random choice repeatable.")] = 0,
    old: Annotated[
        bool, typer.Option("--old", envvar="GENFLOW_OLD", help="Answer as a 0.3.x release: no jobs routes.")
    ] = False,
    guard: Annotated[
        bool, typer.Option("--guard", envvar="GENFLOW_GUARD", help="With genflow's guard (docs/how-to/guard.md).")
    ] = False,
    busy: Annotated[
        int, typer.Option(min=0, max=10_000, envvar="GENFLOW_BUSY", help="Prompts of another client in the queue.")
    ] = 0,
    busy_for: Annotated[
        float, typer.Option(min=0, envvar="GENFLOW_BUSY_FOR", help="Those prompts run, this many seconds each.")
    ] = 0.0,
    output_dir: Annotated[
        Path | None,
        typer.Option(envvar="GENFLOW_OUTPUT_DIR", help="Keep the servers' files here [default: a temporary folder]."),
    ] = None,
    shared_output: Annotated[
        Path | None, typer.Option(envvar="GENFLOW_SHARED_OUTPUT", help="One output folder for all servers.")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(envvar="GENFLOW_JOURNAL", help="A folder for each server's books: NAME.jsonl, a line an event."),
    ] = None,
    knobs: Annotated[
        str, typer.Option(envvar="GENFLOW_KNOBS", help="Knobs to start with, as JSON (docs/reference/simulator.md).")
    ] = "{}",
    as_json: Annotated[
        bool, typer.Option("--json", envvar="GENFLOW_JSON", help="Print the addresses as JSON.")
    ] = False,
) -> None:
    """Run simulated ComfyUI servers until SIGTERM or Ctrl-C."""
    from genflow.simulator import SimulatorOptions, parse_script

    try:
        options = SimulatorOptions(
            count=count,
            host=host,
            port=port,
            name=name,
            script=tuple(parse_script(script)),
            seconds_per_step=seconds_per_step,
            seconds_per_megapixel=seconds_per_megapixel,
            swap_seconds=swap_seconds,
            speed=_numbers("--speed", speed, float),
            vram=_numbers("--vram", vram, int),
            seed=seed,
            old=old,
            guard=guard,
            busy=busy,
            busy_for=busy_for,
            output_dir=output_dir,
            shared_output=shared_output,
            journal=journal,
            knobs=_parsed_knobs(knobs),
        )
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    try:
        asyncio.run(_serve(options, as_json=as_json))
    except GenflowError as fault:
        raise typer.BadParameter(fault.message) from None
    except OSError as fault:
        typer.echo(f"genflow simulate: cannot listen on {host}:{port}: {fault}", err=True)
        raise typer.Exit(1) from None


def _numbers(flag: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    try:
        return tuple(kind(each) for each in text.split(","))
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{flag} takes {what} with commas between them, not {text!r}") from None


def _parsed_knobs(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("knobs must be a JSON object")
    return parsed


async def _serve(options: SimulatorOptions, *, as_json: bool) -> None:
    from genflow.simulator import running

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with running(options) as servers:
        addresses = {server.name: server.url for server in servers}
        if as_json:
            sys.stdout.write(json.dumps({"ready": addresses}) + "\n")
        else:
            for server_name, url in addresses.items():
                sys.stdout.write(f"{server_name}  {url}  simulated ComfyUI, no GPU\n")
        sys.stdout.flush()
        await stopped.wait()
