"""What the API's answers and bodies look like, as JSON Schema: the contract's objects and genflow's own.

One table for the OpenAPI document (api/document.py). A test drives the API by that document and holds every answer
against these, so that neither can change alone.
"""

from __future__ import annotations

from typing import Any

from genflow.failures import FailureClass
from genflow.jobs import State, Status, Step, SubmitState
from genflow.queue.registry import ServerState

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
ID: Schema = {"type": "string", "format": "uuid"}
ANY_OBJECT: Schema = {"type": "object"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT, "maxProperties": 16}
HASH: Schema = {"type": "string", "pattern": "^blake3:[0-9a-f]{64}$"}


def ref(name: str) -> Schema:
    """One of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    """Any number of these."""
    return {"type": "array", "items": schema}


def one_of(*values: str) -> Schema:
    """A closed list of texts."""
    return {"type": "string", "enum": list(values)}


def record(fields: Schema, optional: Schema | None = None) -> Schema:
    """An object that always has all of `fields`, and may have the `optional` ones."""
    return {"type": "object", "required": list(fields), "properties": fields | (optional or {})}


def page(name: str, item: Schema) -> Schema:
    """One page of a list; `next_cursor` is null on the last one."""
    return record({name: list_of(item), "next_cursor": or_null(TEXT)})


PROGRESS = record(
    {
        "value": {"type": "number", "minimum": 0, "maximum": 1}, "nodes_done": WHOLE, "nodes_total": WHOLE,
        "current_node": or_null(TEXT), "current_node_class": or_null(TEXT), "step": or_null(WHOLE),
        "steps": or_null(WHOLE), "message": or_null(TEXT),
    }
)  # fmt: skip

JOB_ERROR = record(
    {
        "code": TEXT, "message": TEXT, "node_id": or_null(TEXT), "class_type": or_null(TEXT),
        "traceback": or_null(TEXT),
    }
)  # fmt: skip

OUTPUT = record(
    {
        "id": ID, "job_id": ID, "node_id": TEXT, "name": TEXT,
        "type": one_of("image", "video", "audio", "text", "file", "latent"), "content_type": TEXT,
        "size_bytes": WHOLE, "hash": or_null(HASH), "text": or_null(TEXT), "url": TEXT, "url_expires_at": TIME,
    }
)  # fmt: skip

JOB = record(
    {
        "id": ID, "status": one_of(*Status), "created_at": TIME, "started_at": or_null(TIME),
        "completed_at": or_null(TIME), "expires_at": TIME, "queue_position": or_null(WHOLE),
        "progress": or_null(ref("Progress")), "outputs": list_of(ref("Output")), "error": or_null(ref("JobError")),
        "metrics": {"type": "object", "additionalProperties": or_null(WHOLE)}, "metadata": LABELS,
        "urls": record({"self": TEXT, "events": TEXT, "cancel": TEXT}),
    },
    optional={"seed": WHOLE},
)  # fmt: skip

LISTED_JOB = record({"id": ID, "status": one_of(*Status), "create_time": TIME, "update_time": TIME, "metadata": LABELS})

ASSET = record(
    {
        "id": ID, "hash": or_null(HASH), "size_bytes": WHOLE, "content_type": TEXT, "file_path": or_null(TEXT),
        "created_at": TIME, "url": TEXT, "url_expires_at": TIME, "expires_at": or_null(TIME), "job_id": or_null(ID),
    },
    optional={"created_new": FLAG, "tags": list_of(TEXT)},
)  # fmt: skip

ERROR = record({"error": record({"code": TEXT, "message": TEXT, "details": or_null(ANY_OBJECT)})})

ATTEMPT = record(
    {
        "no": WHOLE, "server": TEXT, "worker": ID, "started_at": TIME, "ended_at": or_null(TIME),
        "outcome": or_null(one_of("succeeded", "failed", "canceled", "given_back")),
        "class": or_null(one_of(*FailureClass)), "code": or_null(TEXT), "reason": or_null(TEXT),
        "node_id": or_null(TEXT), "node_class": or_null(TEXT), "gpu_ms": or_null(WHOLE),
    }
)  # fmt: skip

SUBMIT = record(
    {"no": WHOLE, "uuid": ID, "server": TEXT, "state": one_of(*(each.name.lower() for each in SubmitState))}
)

STORY = record(
    {
        "id": ID, "status": one_of(*Status), "state": one_of(*(each.name.lower() for each in State)),
        "step": one_of(*(each.name.lower() for each in Step)), "server": or_null(TEXT), "worker": or_null(ID),
        "token": WHOLE, "attempts_spent": WHOLE, "takeovers": WHOLE, "resubmits": WHOLE, "failed_downloads": WHOLE,
        "moved": WHOLE, "doubled": WHOLE, "created_at": TIME, "started_at": or_null(TIME),
        "completed_at": or_null(TIME), "cancel_asked_at": or_null(TIME), "start_by": or_null(TIME),
        "runs_again_at": or_null(TIME), "waits_because": or_null(TEXT), "lease_until": or_null(TIME),
        "error": or_null(ref("JobError")), "requeued_from": or_null(ID), "root_id": ID, "requeued_as": or_null(ID),
        "seed": or_null(WHOLE), "parameters": or_null(ANY_OBJECT), "set_values": or_null(ANY_OBJECT),
        "metadata": LABELS, "partial_outputs": list_of(ANY_OBJECT), "attempts": list_of(ref("Attempt")),
        "submits": list_of(ref("Submit")),
    }
)  # fmt: skip

STORY_LISTED = record(
    {
        "id": ID, "status": one_of(*Status), "state": one_of(*(each.name.lower() for each in State)),
        "created_at": TIME, "started_at": or_null(TIME), "completed_at": or_null(TIME), "attempts": WHOLE,
        "takeovers": WHOLE, "resubmits": WHOLE, "error_code": or_null(TEXT), "metadata": LABELS,
    }
)  # fmt: skip

DEAD_LETTER = record(
    {
        "id": ID, "class": or_null(one_of(*FailureClass)), "code": TEXT, "reason": TEXT, "node_id": or_null(TEXT),
        "node_class": or_null(TEXT), "server": or_null(TEXT), "attempts": WHOLE, "created_at": TIME,
        "failed_at": TIME, "batch": or_null(ID), "requeued_from": or_null(ID), "root_id": ID,
        "requeued_as": or_null(ID), "metadata": LABELS,
    }
)  # fmt: skip

WHOLE_DEAD_LETTER = record(
    DEAD_LETTER["properties"]
    | {
        "attempts": list_of(ref("Attempt")), "attempts_spent": WHOLE, "submits": list_of(ref("Submit")),
        "takeovers": WHOLE, "resubmits": WHOLE, "doubled": WHOLE, "message": TEXT, "traceback": or_null(TEXT),
        "parameters": or_null(ANY_OBJECT), "set_values": or_null(ANY_OBJECT), "workflow": TEXT,
        "posted": or_null(ANY_OBJECT),
    }
)  # fmt: skip

_REFUSED = record({"id": ID, "error": record({"code": TEXT, "message": TEXT})})
_REQUEUED = record({"id": or_null(ID), "requeued_from": ID}, optional={"dry_run": FLAG})

BATCH_LISTED = record({"id": ID, "name": TEXT, "state": one_of("running", "paused"), "created_at": TIME})
_COUNTS = ("rows", "queued", "running", "succeeded", "failed", "canceled", "expired", "gone")
BATCH = record(
    BATCH_LISTED["properties"]
    | {name: WHOLE for name in _COUNTS}
    | {"rows_per_minute": NUMBER, "seconds_left": or_null(NUMBER)}
)
BATCH_ROW = record(
    {
        "line": WHOLE, "id": ID, "job_id": or_null(ID), "set": ANY_OBJECT, "status": one_of(*Status, "gone"),
        "server": or_null(TEXT), "attempts": or_null(WHOLE), "queued_s": or_null(NUMBER), "job_s": or_null(NUMBER),
        "attempt_s": or_null(NUMBER), "gpu_ms": or_null(WHOLE), "reason": or_null(TEXT), "code": or_null(TEXT),
        "files": list_of(ANY_OBJECT),
    }
)  # fmt: skip

SERVER = record(
    {
        "name": TEXT, "state": one_of(*(each.name.lower() for each in ServerState)), "reason": or_null(TEXT),
        "until": or_null(TIME), "needs_run": FLAG, "healthy": FLAG, "boot": or_null(ID),
        "guard": or_null(FLAG), "slots": WHOLE, "open_submits": WHOLE, "waiting_jobs": WHOLE, "erasures_left": WHOLE,
        "vram_bytes": or_null(WHOLE), "tags": list_of(TEXT), "last_seen_at": or_null(TIME),
        "seen_by": list_of(ANY_OBJECT),
    }
)  # fmt: skip
WORKER = record(
    {
        "id": ID, "name": TEXT, "host": TEXT, "version": TEXT, "state": one_of("working", "draining", "gone"),
        "jobs": WHOLE, "servers": list_of(TEXT), "started_at": TIME, "seen_at": TIME,
    }
)  # fmt: skip
STATUS = record(
    {
        "jobs": {"type": "object", "additionalProperties": WHOLE}, "oldest_waiting_s": or_null(NUMBER),
        "last_hour": record({"succeeded": WHOLE, "failed": WHOLE, "dead_letters_by_class": ANY_OBJECT}),
        "ended_per_minute": NUMBER, "waiting_for_lost_servers": WHOLE, "servers": list_of(ANY_OBJECT),
        "workers": list_of(ANY_OBJECT),
    }
)  # fmt: skip

PARAMETER = record(
    {
        "name": TEXT,
        "kind": one_of("text", "whole", "number", "choice", "truth", "seed", "asset", "photo"),
        "required": FLAG, "default": {}, "low": or_null(NUMBER), "high": or_null(NUMBER), "step": or_null(WHOLE),
        "choices": or_null(list_of(TEXT)), "description": or_null(TEXT),
    }
)  # fmt: skip

TEMPLATE = record({"name": TEXT, "description": or_null(TEXT), "parameters": list_of(PARAMETER)})

SCHEMAS: dict[str, Schema] = {
    "Template": TEMPLATE,
    "Templates": record({"templates": list_of(ref("Template"))}),
    "Asset": ASSET,
    "Attempt": ATTEMPT,
    "Batch": BATCH,
    "BatchList": page("batches", BATCH_LISTED),
    "BatchRows": page("rows", BATCH_ROW),
    "DeadLetter": DEAD_LETTER,
    "DeadLetters": {"anyOf": [page("dead_letters", ref("DeadLetter")), ref("DeadLetterGroups")]},
    "DeadLetterGroups": record(
        {
            "by": TEXT,
            "groups": list_of(record({"key": or_null(TEXT), "count": WHOLE, "latest_at": TIME, "example": ID})),
        }
    ),
    "Erased": record(
        {
            "id": ID,
            "status": one_of("erased", "canceling"),
            "files_deleted": FLAG,
            "copies_left": list_of(record({"server": TEXT, "copies": WHOLE})),
        }
    ),
    "Error": ERROR,
    "Health": record({"status": TEXT}, optional={"checks": ANY_OBJECT, "upstream": TEXT}),
    "Job": JOB,
    "JobError": JOB_ERROR,
    "JobList": page("jobs", LISTED_JOB),
    "Output": OUTPUT,
    "Progress": PROGRESS,
    "Purged": record({"purged": list_of(ID)}, optional={"next_cursor": or_null(TEXT), "dry_run": FLAG}),
    "Requeued": _REQUEUED,
    "RequeuedAll": record(
        {
            "requeued": list_of(_REQUEUED),
            "refused": list_of(_REFUSED),
            "next_cursor": or_null(TEXT),
            "dry_run": FLAG,
        }
    ),
    "Server": SERVER,
    "Servers": record({"servers": list_of(ref("Server"))}),
    "Status": STATUS,
    "Story": STORY,
    "StoryList": page("jobs", STORY_LISTED),
    "Submit": SUBMIT,
    "WholeDeadLetter": WHOLE_DEAD_LETTER,
    "Workers": record({"workers": list_of(WORKER)}),
    "Workflow": record({"workflow": ANY_OBJECT, "format": one_of("api", "save")}),
}
"""Every object of the API by its name."""
