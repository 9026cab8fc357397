"""`genflow portrait`: a face photo and a prompt in, a picture out."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genflow.cli.exits import Exit, Misuse

if TYPE_CHECKING:
    from genflow.cli.client import Client

SENDS = 3
"""Times that a photo is sent while it stays in doubt whether it arrived; its key keeps that to one job."""


def portrait(
    photo: Annotated[Path, typer.Argument(help="Photo of a face: JPEG, PNG or WebP.", show_default=False)],
    prompt: Annotated[str, typer.Argument(help="What the portrait should show.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Where the picture goes; several get -1, -2 … before the ending.")] = Path(
        "portrait.png"
    ),
    negative: Annotated[str | None, typer.Option(help="What it should not show.")] = None,
    lora: Annotated[str | None, typer.Option(help="A style LoRA that the service knows.")] = None,
    lora_strength: Annotated[float | None, typer.Option(help="-2 to 2 (0.8).")] = None,
    face_strength: Annotated[float | None, typer.Option(help="How much of the face is kept: 0 to 3 (0.85).")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same picture (random).")] = None,
    steps: Annotated[int | None, typer.Option(help="Sampler steps: 1 to 100 (20).")] = None,
    cfg: Annotated[float | None, typer.Option(help="How closely the prompt is followed: 0 to 30 (6).")] = None,
    width: Annotated[int | None, typer.Option(help="256 to 2048, a multiple of 8 (512).")] = None,
    height: Annotated[int | None, typer.Option(help="256 to 2048, a multiple of 8 (640).")] = None,
    sampler: Annotated[str | None, typer.Option(help="KSampler's sampler (euler).")] = None,
    scheduler: Annotated[str | None, typer.Option(help="KSampler's scheduler (normal).")] = None,
    count: Annotated[int | None, typer.Option(help="Pictures out of one run: 1 to 8 (1).")] = None,
    start_by_s: Annotated[
        float | None, typer.Option(help="The job expires unless it has begun within this many seconds.")
    ] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the job.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="IDEMPOTENCY_KEY", help="The service accepts one job under one key.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the picture, or print the job's id.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
) -> None:
    """Make a portrait from a photo and a prompt, and wait for it.

    GENFLOW_URL names the service [default: http://127.0.0.1:8190], GENFLOW_API_KEY the key to it.
    """
    from genflow.cli.talk import run_client

    given = {
        "prompt": prompt,
        "negative_prompt": negative,
        "lora": lora,
        "lora_strength": lora_strength,
        "face_strength": face_strength,
        "seed": seed,
        "steps": steps,
        "cfg": cfg,
        "width": width,
        "height": height,
        "sampler": sampler,
        "scheduler": scheduler,
        "count": count,
        "start_by_s": start_by_s,
    }
    fields = {name: str(value) for name, value in given.items() if value is not None}
    run_client(_portrait(photo, fields, metadata or [], key, out if wait else None, as_json), as_json=as_json)


async def _portrait(
    photo: Path, fields: dict[str, str], pairs: list[str], key: str | None, out: Path | None, as_json: bool
) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import complain, note, print_json, screen
    from genflow.cli.waiting import check_writable, exit_of_job, save, wait_for

    labels = read_labels(pairs)
    if labels:
        fields["metadata"] = json.dumps(labels)
    data = await asyncio.to_thread(read_photo, photo)
    if out is not None:
        check_writable(out)
    async with connect() as client:
        job = await send_portrait(client, photo.name, data, fields, key)
        note(f"job {job['id']}, seed {job['seed']}")
        if out is None:
            if as_json:
                print_json(job)
            else:
                typer.echo(job["id"])
            return Exit.OK
        again = f"genflow jobs wait {job['id']} --out {out}"
        job = (await wait_for(client, job["id"], screen(), label="portrait", hint=again)).job
        saved = await save(client, job["outputs"], out) if job["status"] == "succeeded" else []
    if as_json:
        print_json(job | {"saved": [str(path) for path in saved]})
    elif saved:
        for path in saved:
            typer.echo(str(path))
    if job["status"] != "succeeded":
        reason = f": {job['error']['message']} [{job['error']['code']}]" if job["error"] else ""
        complain(f"job {job['id']} {job['status']}{reason}")
    return exit_of_job(job["status"])


def read_labels(pairs: list[str]) -> dict[str, str]:
    """Metadata from KEY=VALUE pairs. Misuse for what is none, or a key given twice."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise Misuse(f"--metadata takes KEY=VALUE, not {pair!r}")
        if name in labels:
            raise Misuse(f"--metadata names {name!r} twice")
        labels[name] = value
    return labels


def read_photo(photo: Path) -> bytes:
    """The photo's bytes. Misuse when they can't be read."""
    try:
        return photo.read_bytes()
    except OSError as error:
        raise Misuse(f"the photo {photo} can't be read: {error.strerror or error}") from None


async def send_portrait(
    client: Client, name: str, data: bytes, fields: dict[str, str], key: str | None
) -> dict[str, Any]:
    """Ask for a portrait; the accepted job.

    A reply that got lost is no second job: the request is sent again under the same key, and a key that is known by
    then names the job of the first try. Raises Refused or Unreachable.
    """
    import aiohttp

    from genflow.cli.client import Refused, Unreachable

    def form() -> aiohttp.FormData:
        body = aiohttp.FormData()
        for field, value in fields.items():
            body.add_field(field, value)
        body.add_field("photo", data, filename=name, content_type="application/octet-stream")
        return body

    headers = {"Idempotency-Key": key or str(uuid.uuid4())}
    for sending in range(1, SENDS + 1):
        try:
            job: dict[str, Any] = await client.post("/genflow/v1/portraits", form=form, headers=headers)
            return job
        except Refused as fault:
            ours = fault.details.get("job_id") if fault.code == "idempotency_key_reuse" else None
            if sending == 1 or key is not None or ours is None:
                raise
            found: dict[str, Any] = await client.get(f"/api/v2/jobs/{ours}")
            return found
        except Unreachable as fault:
            if sending == SENDS or not fault.in_doubt:
                raise
            await asyncio.sleep(sending)
    raise RuntimeError("the last send returns or raises")
