"""What ComfyUI's answers about one job say, as values. Pure.

Strict on purpose: an answer that has not the known shape raises `Malformed` and becomes "can't tell", never "unknown",
for "unknown" lets a job be posted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from genflow.errors import clean_text
from genflow.protocol import ExecutionError, HistoryEntry

KEPT_TRACEBACK_LINES = 100


class Malformed(ValueError):
    """An answer that is not of the known shape."""


@dataclass(frozen=True, slots=True)
class QueueItem:
    """A prompt in a server's queue: whether it runs, and the submit it was posted for."""

    running: bool
    submit: UUID | None


@dataclass(frozen=True, slots=True)
class Device:
    """What a server runs on; memory in bytes, None where it does not say."""

    name: str
    vram_total: int | None
    vram_free: int | None


def device_of(stats: Mapping[str, Any]) -> Device | None:
    """The first device in /system_stats, which is the one that the server uses; None where there is none."""
    devices = stats.get("devices")
    first = devices[0] if isinstance(devices, list) and devices else None
    if not isinstance(first, dict):
        return None
    name = clean_text(str(first.get("name", "unnamed")), 120)
    return Device(name, _bytes(first.get("vram_total")), _bytes(first.get("vram_free")))


def _bytes(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**60 else None


def is_not_found(status: int, answer: Any) -> bool:
    """Whether this is ComfyUI's own "no such job", and not a missing route or somebody else's 404."""
    return status == 404 and answer == {"error": "Job not found"}


def job_status(answer: Any, job_id: UUID) -> Literal["pending", "running", "ended"]:
    """What GET /api/jobs/ID says. Raises Malformed."""
    if not isinstance(answer, dict) or answer.get("id") != str(job_id):
        raise Malformed("/api/jobs answered about another job")
    match answer.get("status"):
        case "pending":
            return "pending"
        case "in_progress":
            return "running"
        case "completed" | "failed" | "cancelled":
            return "ended"
        case other:
            raise Malformed(f"/api/jobs names the status {other!r}")


def entry_of_job(answer: Any) -> HistoryEntry:
    """The entry in GET /api/jobs/ID of an ended job. Raises Malformed."""
    workflow = _dict(answer, "workflow")
    return _entry(workflow.get("prompt"), workflow.get("extra_data"), answer, answer.get("execution_status"))


def entry_of_history(answer: Any, job_id: UUID) -> HistoryEntry | None:
    """The entry in GET /history/ID; None where it is `{}`: unknown, pending, running or deleted. Raises Malformed."""
    if answer == {}:
        return None
    entry = _dict(answer, str(job_id))
    prompt = entry.get("prompt")
    if not isinstance(prompt, list) or len(prompt) < 4:
        raise Malformed("a history entry without its prompt")
    return _entry(prompt[2], prompt[3], entry, entry.get("status"))


def queue_items(answer: Any, job_id: UUID) -> list[QueueItem]:
    """The job's items in GET /queue; more than one where it was posted twice. Raises Malformed."""
    found: list[QueueItem] = []
    for key, running in (("queue_running", True), ("queue_pending", False)):
        items = answer.get(key) if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise Malformed(f"/queue without {key}")
        for item in items:
            if not isinstance(item, list) or len(item) < 4:
                raise Malformed("/queue holds an item of an unknown shape")
            if item[1] == str(job_id):
                found.append(QueueItem(running, submit_of(item[3])))
    return found


def submit_of(extra_data: Any) -> UUID | None:
    """The submit named in a prompt's `extra_data`; None for a prompt that is not ours."""
    ours = extra_data.get("genflow") if isinstance(extra_data, dict) else None
    try:
        return UUID(ours["submit"]) if isinstance(ours, dict) else None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _entry(graph: Any, extra_data: Any, holder: dict[str, Any], status: Any) -> HistoryEntry:
    messages = _messages(status)
    outcome = _outcome(status, messages)
    if not isinstance(graph, dict):
        raise Malformed("an ended prompt without its graph")
    return HistoryEntry(
        outcome=outcome,
        submit=submit_of(extra_data),
        outputs=_dict(holder, "outputs"),
        error=_error(messages) if outcome == "error" else None,
        exec_start_ms=_timestamp(messages.get("execution_start")),
        exec_end_ms=_timestamp(messages.get(_ENDS[outcome])),
        graph=graph,
    )


_ENDS = {"success": "execution_success", "error": "execution_error", "interrupted": "execution_interrupted"}


def _outcome(status: dict[str, Any], messages: dict[str, Any]) -> Literal["success", "error", "interrupted"]:
    word = status.get("status_str")
    if word == "success" and status.get("completed") is True:
        return "success"
    if word == "error":
        # An interruption has the same word; only its message tells it apart.
        return "interrupted" if "execution_interrupted" in messages else "error"
    raise Malformed(f"an ended prompt with status {word!r}, completed {status.get('completed')!r}")


def _messages(status: Any) -> dict[str, Any]:
    """The status messages by name; a name stands once in an entry."""
    if not isinstance(status, dict) or not isinstance(status.get("messages"), list):
        raise Malformed("an ended prompt without its status messages")
    return {
        message[0]: message[1]
        for message in status["messages"]
        if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str)
    }


def _error(messages: dict[str, Any]) -> ExecutionError:
    told = messages.get("execution_error")
    told = told if isinstance(told, dict) else {}
    lines = told.get("traceback")
    return ExecutionError(
        node_id=clean_text(str(told.get("node_id", "?")), 200),
        node_class=clean_text(str(told.get("node_type", "?")), 200),
        exception_type=clean_text(str(told.get("exception_type", "unknown")), 200),
        message=clean_text(str(told.get("exception_message", ""))),
        traceback=[
            clean_text(str(line), 1_000) for line in (lines if isinstance(lines, list) else [])[:KEPT_TRACEBACK_LINES]
        ],
    )


_NO_TIME_MS = 2**53
"""No server's clock says so, and a database would not take much more."""


def _timestamp(message: Any) -> int | None:
    stamp = message.get("timestamp") if isinstance(message, dict) else None
    return stamp if isinstance(stamp, int) and not isinstance(stamp, bool) and 0 <= stamp < _NO_TIME_MS else None


def _dict(holder: Any, key: str) -> dict[str, Any]:
    value = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(value, dict):
        raise Malformed(f"{key} is not there or no object")
    return value
