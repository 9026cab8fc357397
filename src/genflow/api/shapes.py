"""The JSON of the API, key by key: the Comfy API v2's objects, and genflow's own story of a job.

Every key of the contract is always there, null where there is nothing to say; times carry their zone; a state is one
of the contract's seven. The SDK raises on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from genflow.api.links import Links
from genflow.jobs import State, Status, Step, SubmitState, shown_status
from genflow.queue.records import AssetRecord, JobView, OutputRecord


def time(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC, as `2026-08-22T10:00:00.123456Z`."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return max(0, round((end - start).total_seconds() * 1000))


def _link(asset: UUID, expires_at: datetime | None, links: Links) -> dict[str, str | None]:
    """The link to an asset's bytes; it stands no longer than what it leads to."""
    url, until = links.content(asset)
    return {"url": url, "url_expires_at": time(until if expires_at is None else min(until, expires_at))}


def output(record: OutputRecord, job: JobView, links: Links) -> dict[str, Any]:
    """An Output: an asset as its job lists it."""
    return {
        "id": str(record.id),
        "job_id": str(job.id),
        "node_id": record.node_id,
        "name": record.name,
        "type": record.type,
        "content_type": record.content_type,
        "size_bytes": record.size,
        "hash": None if record.hash is None else f"blake3:{record.hash}",
        "text": record.text,
        **_link(record.id, record.expires_at or job.expires_at, links),
    }


def asset(record: AssetRecord, links: Links) -> dict[str, Any]:
    """An Asset: a user's file record over a blob."""
    return {
        "id": str(record.id),
        "hash": None if record.hash is None else f"blake3:{record.hash.hex()}",
        "size_bytes": record.size,
        "content_type": record.content_type,
        "file_path": record.name,
        "created_at": time(record.created_at),
        **_link(record.id, record.expires_at, links),
        "expires_at": time(record.expires_at),
        "job_id": id_text(record.job_id),
        "tags": record.tags,
    }


def progress(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A Progress, complete in itself; null until something is known."""
    if value is None:
        return None
    return {
        "value": min(1.0, max(0.0, float(value["value"]))),
        "nodes_done": value["nodes_done"],
        "nodes_total": value["nodes_total"],
        "current_node": value.get("current_node"),
        "current_node_class": value.get("current_node_class"),
        "step": value.get("step"),
        "steps": value.get("steps"),
        "message": value.get("message"),
    }


def job_error(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A JobError: why a job failed for good. A server's traceback stays with the operators."""
    if value is None:
        return None
    return {
        "code": value["code"],
        "message": value["message"],
        "node_id": value.get("node_id"),
        "class_type": value.get("class_type"),
        "traceback": None,
    }


def job(view: JobView, links: Links) -> dict[str, Any]:
    """A Job of the contract; `seed` beside it where the job is a portrait."""
    shown: dict[str, Any] = {
        "id": str(view.id),
        "status": view.status.value,
        "created_at": time(view.created_at),
        "started_at": time(view.started_at),
        "completed_at": time(view.ended_at),
        "expires_at": time(view.expires_at),
        "queue_position": view.queue_position,
        "progress": progress(view.progress),
        "outputs": [output(record, view, links) for record in view.outputs],
        "error": job_error(view.error),
        "metrics": {
            "queue_ms": _milliseconds(view.created_at, view.started_at),
            "execution_ms": view.execution_ms,
        },
        "metadata": view.metadata,
        "urls": links.job(view.id),
    }
    if (seed := _seed(view.params)) is not None:
        shown["seed"] = seed
    return shown


def light(row: dict[str, Any]) -> dict[str, Any]:
    """A job in the Comfy API v2's list, which names its times otherwise than the job itself does."""
    return {
        "id": str(row["id"]),
        "status": _status(row).value,
        "create_time": time(row["created_at"]),
        "update_time": time(row["changed_at"]),
        "metadata": row["metadata"],
    }


def _seed(params: Mapping[str, Any] | None) -> int | None:
    """The seed of a template's job, where it has one by that name."""
    seed = None if params is None else params.get("seed")
    return seed if isinstance(seed, int) else None


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """A job in genflow's own list: a light record from a row of job_list.sql."""
    return {
        "id": str(row["id"]),
        "status": _status(row).value,
        "state": State(row["state"]).name.lower(),
        "created_at": time(row["created_at"]),
        "started_at": time(row["executing_at"]),
        "completed_at": time(row["ended_at"]),
        "attempts": row["attempt"],
        "takeovers": row["takeovers"],
        "resubmits": row["resubmits"],
        "error_code": row["error_code"],
        "metadata": row["metadata"],
    }


def _status(row: dict[str, Any]) -> Status:
    return shown_status(
        State(row["state"]), cancel_asked=row["cancel_at"] is not None, executing=row["executing_at"] is not None
    )


def story(row: dict[str, Any]) -> dict[str, Any]:
    """A job's own story, from the row of job_story.sql: what was tried, where, and what ran."""
    params = row["params"]
    return {
        "id": str(row["id"]),
        "status": _status(row).value,
        "state": State(row["state"]).name.lower(),
        "step": Step(row["step"]).name.lower(),
        "server": row["server"],
        "worker": id_text(row["worker_id"]),
        "token": row["token"],
        "attempts_spent": row["attempt"],
        "takeovers": row["takeovers"],
        "resubmits": row["resubmits"],
        "failed_downloads": row["collects"],
        "moved": row["moved"],
        "doubled": row["doubled"],
        "created_at": time(row["created_at"]),
        "started_at": time(row["executing_at"]),
        "completed_at": time(row["ended_at"]),
        "cancel_asked_at": time(row["cancel_at"]),
        "start_by": time(row["start_by"]),
        "runs_again_at": time(row["run_at"]),
        "waits_because": row["waits_because"],
        "lease_until": time(row["lease_until"]) if State(row["state"]) is State.HELD else None,
        "error": job_error(row["error"]),
        "requeued_from": id_text(row["requeued_from"]),
        "root_id": str(row["root_id"]),
        "requeued_as": id_text(row["requeued_as"]),
        "seed": _seed(params),
        "parameters": params,
        "set_values": row["set_values"],
        "metadata": row["metadata"],
        "partial_outputs": row["partial_outputs"],
        "attempts": [_with_times(attempt) for attempt in row["attempts"]],
        "submits": [
            _with_times(submit) | {"state": SubmitState(submit["state"]).name.lower()} for submit in row["submits"]
        ],
    }


def id_text(value: UUID | None) -> str | None:
    """An id as the API writes it; null where there is none."""
    return None if value is None else str(value)


def _with_times(item: dict[str, Any]) -> dict[str, Any]:
    """An attempt or a submit, whose times Postgres wrote as text."""
    times = {key: time(datetime.fromisoformat(value)) for key, value in item.items() if key.endswith("_at") and value}
    return item | times
