"""The JSON of dead letters. It is for operators: the server's own words and tracebacks stand in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from genflow.api import shapes
from genflow.api.shapes import id_text, time


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """A dead letter in the list, from a row of dead_list.sql."""
    return {
        "id": str(row["id"]),
        "class": row["class"],
        "code": row["code"],
        "reason": row["reason"],
        "node_id": row["node_id"],
        "node_class": row["node_class"],
        "server": row["server"],
        "attempts": row["attempts"],
        "created_at": time(row["created_at"]),
        "failed_at": time(row["ended_at"]),
        "batch": id_text(row["batch_id"]),
        "requeued_from": id_text(row["requeued_from"]),
        "root_id": str(row["root_id"]),
        "requeued_as": id_text(row["requeued_as"]),
        "metadata": row["metadata"],
    }


def group(row: dict[str, Any]) -> dict[str, Any]:
    """How many dead letters have one thing in common, with the latest of them."""
    return {
        "key": row["key"],
        "count": row["count"],
        "latest_at": time(row["latest_at"]),
        "example": str(row["example"]),
    }


def whole(row: dict[str, Any], story: dict[str, Any]) -> dict[str, Any]:
    """All of a dead letter, from the rows of dead_letter.sql and job_story.sql."""
    told = shapes.story(story)
    return listed(row) | {
        "attempts": [attempt | _seconds(attempt) for attempt in told["attempts"]],
        "attempts_spent": row["attempts"],
        "submits": told["submits"],
        "takeovers": told["takeovers"],
        "resubmits": told["resubmits"],
        "doubled": told["doubled"],
        "message": row["message"],
        "traceback": row["traceback"],
        "parameters": row["params"],
        "set_values": row["set_values"],
        "workflow": row["workflow"],
        "posted": row["posted"],
    }


def requeued(old: UUID, new: UUID | None) -> dict[str, Any]:
    """What came of one requeue; `id` is null where none was made."""
    return {"id": id_text(new), "requeued_from": str(old)}


def _seconds(attempt: dict[str, Any]) -> dict[str, float | None]:
    """An attempt's seconds, by the clock and on the GPU."""
    started, ended, gpu_ms = attempt["started_at"], attempt["ended_at"], attempt["gpu_ms"]
    by_clock = None
    if started is not None and ended is not None:
        by_clock = round((datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds(), 3)
    return {"seconds": by_clock, "gpu_seconds": None if gpu_ms is None else gpu_ms / 1000}
