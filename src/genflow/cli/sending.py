"""The files that a jobs file names go to the service before its rows do, each once."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from genflow.cli.exits import Misuse

if TYPE_CHECKING:
    import aiohttp

    from genflow.cli.client import Client
    from genflow.intake.jobs_file import Row
    from genflow.intake.template_rows import Kinds, LocalFile

MAKING_S = 600.0
"""Seconds that a service may take to make the jobs of a file: it cleans each photo."""


def read_rows(file: Path, workflow: Path | None, template: str | None) -> list[Row]:
    """The rows of a jobs file. Misuse where they can't be read."""
    from genflow.errors import GenflowError
    from genflow.intake import jobs_file

    try:
        return jobs_file.read_rows(file, workflow=workflow, template=template)
    except GenflowError as error:
        raise Misuse(error.message) from None


def over_templates(rows: Sequence[Row]) -> bool:
    """Whether any of the rows is over a template."""
    from genflow.intake.template_rows import TemplateRow

    return any(isinstance(row, TemplateRow) for row in rows)


async def found_rows(client: Client, file: Path, rows: list[Row]) -> list[Row]:
    """The rows with their files found, by the parameters that the service's templates have. Misuse for bad rows."""
    from genflow.errors import GenflowError
    from genflow.intake.jobs_file import with_files

    if not over_templates(rows):
        return rows
    try:
        return with_files(file, rows, kinds_of((await client.get("/genflow/v1/templates"))["templates"]))
    except GenflowError as error:
        raise Misuse(error.message) from None


def kinds_of(templates: Sequence[dict[str, Any]]) -> Kinds:
    """The kind of each parameter of each template, as a service or a shelf lists them."""
    return {each["name"]: {one["name"]: one["kind"] for one in each["parameters"]} for each in templates}


async def send_files(client: Client, rows: Sequence[Row]) -> dict[str, UUID]:
    """The asset of each file that the rows name, by its BLAKE3; what the service has already is not sent again."""
    from genflow.intake.template_rows import local_files

    return {hash: await _send(client, file) for hash, file in local_files(rows).items()}


async def _send(client: Client, file: LocalFile) -> UUID:
    from genflow.cli.client import Refused

    about = {"hash": f"blake3:{file.hash}", "file_path": file.path.name}
    try:
        return UUID((await client.post("/api/v2/assets/from-hash", json=about))["id"])
    except Refused as refusal:
        if refusal.code != "blob_not_found":
            raise
    with file.path.open("rb") as content:
        return UUID((await client.post("/api/v2/assets", form=lambda: _form(file, content)))["id"])


def _form(file: LocalFile, content: Any) -> aiohttp.FormData:
    import aiohttp

    form = aiohttp.FormData()
    kind = mimetypes.guess_type(file.path.name)[0] or "application/octet-stream"
    form.add_field("content_type", kind)
    form.add_field("file_path", file.path.name)
    form.add_field("expected_hash", f"blake3:{file.hash}")
    form.add_field("file", content, filename=file.path.name, content_type=kind)
    return form
