"""`genflow check`: what these servers lack for the portrait, or for a workflow of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from genflow.cli.exits import Exit, Misuse
from genflow.cli.options import STORE, with_settings
from genflow.settings import Settings

if TYPE_CHECKING:
    from genflow.comfy import ComfyServer
    from genflow.comfy.checkup import Checked

_NOTE = "InsightFace's own files (models/insightface/models/buffalo_l) can't be seen from outside."


@with_settings(("gpu", *STORE))
def check(
    settings: Settings,
    *,
    workflow: Annotated[
        Path | None, typer.Argument(help="An API workflow; none = the FaceID portrait.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which nodes, models and files each server lacks, and where each belongs, and whether the bucket answers.

    With a workflow of one's own also which of its links and inputs the server would refuse. Exit status 0 when every
    server has all, 1 when one lacks something or is away, a workflow is wrong, or the bucket is away (--store).
    """
    from genflow.cli.talk import run_client

    if not settings.gpu:
        raise typer.BadParameter("name a server: --gpu gpu0=http://127.0.0.1:8188")
    run_client(_check(settings, workflow, as_json), as_json=as_json)


async def _check(settings: Settings, workflow: Path | None, as_json: bool) -> Exit:
    import asyncio
    from dataclasses import asdict

    from genflow.cli.talk import print_json
    from genflow.comfy.checkup import reached

    graphs = _portraits(settings) if workflow is None else [_read(workflow)]
    async with reached(settings.gpu) as clients:
        found = await asyncio.gather(*(_of(client, graphs) for client in clients))
    named = dict(zip(settings.gpu, found, strict=True))
    place, trouble = await _bucket(settings)
    whole = all(not isinstance(checked, str) and checked.sound for checked in found) and trouble is None
    if as_json:
        servers = {
            name: checked if isinstance(checked, str) else [asdict(lack) for lack in checked.lacks]
            for name, checked in named.items()
        }
        faults = {name: checked.faults for name, checked in named.items() if not isinstance(checked, str)}
        store = {} if place is None else {"store": {"place": place, "trouble": trouble}}
        print_json({"complete": whole, "lacks": servers, "faults": faults} | store)
        return Exit.OK if whole else Exit.NEGATIVE
    for name, checked in named.items():
        if isinstance(checked, str):
            typer.echo(f"{name}: {checked}")
            continue
        if checked.sound:
            typer.echo(f"{name}: has everything")
        for lack in checked.lacks:
            typer.echo(f"{name}: lacks the {lack.kind} {lack.name} ({lack.where})")
        for fault in checked.faults:
            typer.echo(f"{name}: {fault}")
    if place is not None:
        typer.echo(f"store: {place} {'answers' if trouble is None else f'fails: {trouble}'}")
    if workflow is None:
        typer.echo(_NOTE)
    return Exit.OK if whole else Exit.NEGATIVE


async def _bucket(settings: Settings) -> tuple[str | None, str | None]:
    """The bucket that pictures are kept in, and what is wrong with it; no bucket, for a folder."""
    from genflow.errors import GenflowError
    from genflow.storage.opening import open_store, place_of
    from genflow.telemetry import configure_logs

    if settings.store is None:
        return None, None
    configure_logs(settings.log_level)  # on stderr the store's own words stand in full
    try:
        await open_store(settings).marker()
    except GenflowError as error:
        return place_of(settings), error.message
    return place_of(settings), None


async def _of(client: ComfyServer, graphs: list[dict[str, Any]]) -> Checked | str:
    from genflow.comfy import ComfyError
    from genflow.comfy.checkup import check_graphs

    try:
        return await check_graphs(client, graphs)
    except ComfyError as error:
        return f"unreachable ({error})"


def _portraits(settings: Settings) -> list[dict[str, Any]]:
    """The portrait's workflow, plain and with each style LoRA that a request may name."""
    from genflow.templates.parameters import Parameters
    from genflow.templates.portrait import portrait_workflow
    from genflow.workflow import AssetRef

    photo = AssetRef(UUID(int=0), None, None)
    styles = (None, *settings.portrait.loras)
    return [portrait_workflow(Parameters("", 0, lora=lora), photo, settings.portrait) for lora in styles]


def _read(path: Path) -> dict[str, Any]:
    from genflow.errors import GenflowError
    from genflow.workflow import parse_workflow

    try:
        return parse_workflow(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} can't be read: {error}") from None
    except GenflowError as error:
        raise Misuse(f"{path}: {error.message}") from None
