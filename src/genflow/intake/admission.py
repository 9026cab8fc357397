"""What every way in checks before a job is accepted: one set of rules for HTTP, jobs files and RabbitMQ."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genflow.errors import GenflowError, clean_text
from genflow.queue import Queue
from genflow.validation import FleetNodes, check_workflow, may_pass_soon
from genflow.workflow import AssetRef, asset_refs, check_structure, missing_asset, unfit_character

METADATA_PAIRS = 16
METADATA_KEY_CHARACTERS = 256
METADATA_VALUE_CHARACTERS = 1_024

MANY_NODES = 200
"""Nodes of a workflow from which on it is checked beside the event loop."""

LABELS_BYTES = 256 * 1024
"""Room for a job's labels beside its workflow, in bytes."""


def check_size(text: str, limit: int) -> None:
    """GenflowError `payload_too_large` for a workflow of more than `limit` bytes."""
    if (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
        message = f"The workflow has {size} bytes; at most {limit} are accepted."
        details = {"field": "workflow", "reason": "too_large", "limit": limit, "got": size}
        raise GenflowError("payload_too_large", message, status=413, details=details)


def graph_of(workflow: Any) -> tuple[dict[str, Any], list[AssetRef]]:
    """The workflow, checked for structure, and the assets that it names. Raises what those checks raise."""
    graph = check_structure(workflow)
    return graph, asset_refs(graph)


async def check_runnable(
    queue: Queue, graph: Mapping[str, Any], nodes: FleetNodes | None, *, lenient: bool = False
) -> None:
    """Refuse what no server of the fleet would take, as `check_workflow` does; `nodes` is what they are known to have.

    Where a list of theirs is why, they are asked anew before it is refused: a model may have been added a moment ago.
    """
    try:
        await _check(graph, nodes, lenient)
        return
    except GenflowError:
        nodes = await queue.known_nodes(now=True)
    try:
        await _check(graph, nodes, lenient)
    except GenflowError as error:
        if not may_pass_soon(error):
            raise
        await _check(graph, await queue.known_nodes(anew=True), lenient)


async def _check(graph: Mapping[str, Any], nodes: FleetNodes | None, lenient: bool) -> None:
    if len(graph) < MANY_NODES:
        check_workflow(graph, nodes, lenient=lenient)
    else:
        await asyncio.to_thread(check_workflow, graph, nodes, lenient=lenient)


async def check_assets(queue: Queue, refs: Sequence[AssetRef], *, tenant: int = 1) -> None:
    """GenflowError `missing_asset` unless each reference is an asset of this tenant with its bytes in the store."""
    if not refs:
        return
    found = await queue.assets([ref.id for ref in refs], tenant=tenant)
    for ref in refs:
        if ref.id not in found or found[ref.id].hash is None:
            raise missing_asset("workflow", "unknown", f"there is no asset {ref.id}", got=str(ref.id))


def body_hash(*parts: Any) -> bytes:
    """What tells one request's content from another's; a credential is no part of it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


def labels(value: Any) -> dict[str, str]:
    """A job's metadata: at most 16 pairs of texts. Refused whole, with GenflowError `metadata_invalid`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _metadata_invalid("must be an object of texts", reason="not_an_object", limit=None)
    if len(value) > METADATA_PAIRS:
        message = f"has {len(value)} pairs; at most {METADATA_PAIRS} are kept"
        raise _metadata_invalid(message, reason="too_many", limit=METADATA_PAIRS, got=len(value))
    for key, text in value.items():
        shown = clean_text(key, 80)
        if not isinstance(text, str):
            raise _metadata_invalid(f"{shown!r} must be a text", reason="not_a_text", limit=None, got=shown)
        if not 1 <= len(key) <= METADATA_KEY_CHARACTERS:
            message = f"the key {shown!r} must have 1 to {METADATA_KEY_CHARACTERS} characters"
            raise _metadata_invalid(message, reason="key_length", limit=METADATA_KEY_CHARACTERS, got=len(key))
        if len(text) > METADATA_VALUE_CHARACTERS:
            message = f"{shown!r} is longer than {METADATA_VALUE_CHARACTERS} characters"
            raise _metadata_invalid(message, reason="too_long", limit=METADATA_VALUE_CHARACTERS, got=len(text))
        if unfit := unfit_character(key) or unfit_character(text):
            raise _metadata_invalid(f"{shown!r} holds {unfit}", reason="unfit_text", limit=None, got=shown)
    return value


def _metadata_invalid(message: str, **details: Any) -> GenflowError:
    return GenflowError("metadata_invalid", f"metadata: {message}.", details={"field": "metadata", **details})
