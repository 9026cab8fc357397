"""A job as a message of RabbitMQ: a line of a jobs file with its workflow in it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from genflow.errors import GenflowError, clean_text
from genflow.intake.admission import LABELS_BYTES, body_hash, check_size
from genflow.intake.jobs_file import FileJob, job_of
from genflow.workflow import AssetRef, asset_refs, read_json, split_object, workflow_not_json


@dataclass(frozen=True, slots=True)
class MessageJob:
    """The job that a message holds: its workflow as a value, the assets in it, and what tells its body from others."""

    job: FileJob
    graph: dict[str, Any]
    assets: tuple[AssetRef, ...]
    body_hash: bytes


def read_message(body: bytes, message_id: str | None, *, max_workflow_bytes: int) -> MessageJob:
    """The job in `{"id"?, "workflow", "set"?, "priority"?, "metadata"?}`; `message_id` stands for an `id` left out.

    Raises GenflowError: `invalid_message` for anything that is no such object, and what stands in it being wrong as for
    a jobs file or a request.
    """
    if len(body) > (limit := max_workflow_bytes + LABELS_BYTES):
        message = f"the message has {len(body)} bytes; at most {limit} are read"
        raise GenflowError("payload_too_large", message, status=413)
    try:
        fields = split_object(body)
    except ValueError as error:
        if getattr(error, "key", None) == "workflow":
            raise workflow_not_json(error) from None
        raise _invalid(f"it is no JSON object: {error}") from None
    value = {name: each for name, (each, _) in fields.items()}
    given = value.setdefault("id", message_id)
    if message_id is not None and given != message_id:
        shown = clean_text(str(given), 80)
        raise _invalid(f"its id is {shown!r}, but the message's own id {clean_text(message_id, 80)!r}")
    try:
        job = job_of(value, {name: text for name, (_, text) in fields.items()}, load=_no_file)
    except GenflowError as error:
        raise _invalid(error.message) if error.code == "jobs_file_invalid" else error from None
    check_size(job.workflow, max_workflow_bytes)
    graph = read_json(job.workflow) if job.values else value["workflow"]  # whose structure `job_of` has checked
    return MessageJob(job, graph, tuple(asset_refs(graph)), body_hash(graph, job.metadata))


def write_message(job_id: UUID, workflow: str, *, metadata: Mapping[str, str], priority: int) -> bytes:
    """The body that `read_message` reads, the workflow's text in it as it is."""
    rest = {"metadata": dict(metadata)} if metadata else {}
    head = json.dumps({"id": str(job_id), **rest, **({"priority": priority} if priority else {})})
    return f'{head[:-1]}, "workflow": {workflow}}}'.encode()


def _no_file(path: str) -> NoReturn:
    raise _invalid(f"its workflow is the text {clean_text(path, 80)!r}; a message holds the workflow itself")


def _invalid(message: str) -> GenflowError:
    return GenflowError("invalid_message", message)
