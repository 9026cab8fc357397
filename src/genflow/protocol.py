"""The rules of one run per job, as functions of values: what an answer means, what a body holds, which times fit.

Pure. The rules are those of docs/design/protocol.md; the facts about ComfyUI behind them stand in
docs/design/comfyui.md. The rooms that speak on the wire or to the database decide nothing by themselves: they ask here.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from genflow.errors import clean_text

# --- what a POST's reply means (section 5, step 6) ---


class Reply(StrEnum):
    """What the end of one POST /prompt says about whether the prompt was queued."""

    ACCEPTED = "accepted"
    HALF_VALID = "half_valid"
    """Queued, but ComfyUI silently left out the branches named in `node_errors`."""
    REFUSED = "refused"
    """Never queued: ComfyUI said so, or nothing complete left us."""
    REFUSED_IN_FRONT = "refused_in_front"
    """Never queued: a proxy, a login or a limit in front of ComfyUI answered."""
    SETTLED_DOUBT = "settled_doubt"
    """A whole 500 of ComfyUI itself: it may have queued the prompt, and asking now tells."""
    OPEN_DOUBT = "open_doubt"
    """The prompt may be queued, or may still arrive: only asking after the settle time tells."""


@dataclass(frozen=True, slots=True)
class PostReply:
    """How a POST /prompt ended. `status` is None where no reply came."""

    kind: Reply
    status: int | None = None
    number: float | None = None
    """The server's place in the queue: a receipt, never an identity (0 again after a restart)."""
    error_type: str | None = None
    """ComfyUI's `error.type`, or ours: `connect`, `withheld`, `too_large`, `no_answer`, `not_comfyui`, `half_valid`;
    of the guard `guard_stale`, `guard_seen`."""
    message: str = ""
    node_errors: dict[str, Any] = field(default_factory=dict)
    """Per node id: `class_type` and `errors`, without file lists, tracebacks and server paths."""
    node_id: str | None = None
    node_class: str | None = None
    input_name: str | None = None
    said: str = field(default="", compare=False)
    """The first line of the reply, or of what stood in its place: for operators."""


_IN_FRONT = frozenset({401, 403, 404, 405, 407, 429})
_KEPT_NODES = 50
_KEPT_ERRORS = 10
_TELLS_PATHS = frozenset({"exception_during_validation", "exception_during_inner_validation"})


def classify_post(job_id: UUID, status: int, headers: Mapping[str, str], body: bytes) -> PostReply:
    """What a whole reply to POST /prompt means. The caller has read the body to its end.

    A 500 may still have queued the prompt, and a 200 may be a proxy's page: only what can't be otherwise counts as
    accepted or refused, all else is doubt.
    """
    reply = _classify(job_id, status, headers, body)
    if reply.said:
        return reply
    return replace(reply, said=(_said(body).splitlines() or [reply.message])[0])


def _classify(job_id: UUID, status: int, headers: Mapping[str, str], body: bytes) -> PostReply:
    if status == 200:
        return _classify_200(job_id, _object(body))
    if status == 400:
        return _classify_400(_object(body))
    if status == 409 and (guarded := _of_the_guard(_object(body))) is not None:
        return guarded
    if status == 413:
        return PostReply(Reply.REFUSED, status, error_type="too_large", message=_said(body) or "the body is too large")
    if status in _IN_FRONT or 300 <= status < 400:
        return PostReply(Reply.REFUSED_IN_FRONT, status, message=f"something in front of ComfyUI answered {status}")
    if status == 500 and "aiohttp" in _header(headers, "server").lower():
        return PostReply(Reply.SETTLED_DOUBT, status, message="ComfyUI answered 500 and may have queued the prompt")
    return PostReply(Reply.OPEN_DOUBT, status, error_type="not_comfyui", message=f"{status}: {_said(body)}")


def _classify_200(job_id: UUID, reply: dict[str, Any] | None) -> PostReply:
    number = None if reply is None else reply.get("number")
    node_errors = None if reply is None else reply.get("node_errors")
    if (
        reply is None
        or reply.get("prompt_id") != str(job_id)
        or isinstance(number, bool)
        or not isinstance(number, int | float)
        or not abs(number) < 1e300
        or not isinstance(node_errors, dict)
    ):
        return PostReply(
            Reply.OPEN_DOUBT, 200, error_type="not_comfyui", message="a 200 that is not ComfyUI's receipt for this job"
        )
    if not node_errors:
        return PostReply(Reply.ACCEPTED, 200, number=float(number))
    kept = _kept_node_errors(node_errors)
    node_id, node_class, input_name, said = _first_culprit(kept)
    return PostReply(
        Reply.HALF_VALID,
        200,
        number=float(number),
        error_type="half_valid",
        message=clean_text(f"ComfyUI would run only a part of the workflow: {said}"),
        node_errors=kept,
        node_id=node_id,
        node_class=node_class,
        input_name=input_name,
    )


def _classify_400(reply: dict[str, Any] | None) -> PostReply:
    error = None if reply is None else reply.get("error")
    if reply is None or not isinstance(error, dict) or not isinstance(error.get("type"), str):
        return PostReply(Reply.OPEN_DOUBT, 400, error_type="not_comfyui", message="a 400 that is not ComfyUI's")
    raw = reply.get("node_errors")
    kept = _kept_node_errors(raw if isinstance(raw, dict) else {})
    message = str(error.get("message") or error["type"])
    node_id, node_class, input_name, said = _first_culprit(kept)
    if kept:
        message = f"{message}: {said}"
    else:
        # An unknown node type names its node here, with no node_errors at all.
        extra = error.get("extra_info")
        extra = extra if isinstance(extra, dict) else {}
        node_id, node_class = _text(extra.get("node_id")), _text(extra.get("class_type"))
    return PostReply(
        Reply.REFUSED,
        400,
        error_type=clean_text(error["type"], 100),
        message=clean_text(message),
        node_errors=kept,
        node_id=node_id,
        node_class=node_class,
        input_name=input_name,
        said=clean_text(_named(error["type"], kept)),
    )


def _of_the_guard(reply: dict[str, Any] | None) -> PostReply | None:
    """What the guard at a server means by its refusal; None for any other 409 (docs/how-to/guard.md)."""
    error = None if reply is None else reply.get("error")
    if not isinstance(error, dict) or error.get("type") != "genflow_guard":
        return None
    extra = error.get("extra_info")
    if isinstance(extra, dict) and extra.get("reason") == "stale":
        why = "the guard knows a later holder of this job"
        return PostReply(Reply.REFUSED, 409, error_type="guard_stale", message=why)
    why = "the guard knows this submit: an earlier POST of it got there, or it was barred"
    return PostReply(Reply.SETTLED_DOUBT, 409, error_type="guard_seen", message=why)


def _named(error_type: str, kept: Mapping[str, Any]) -> str:
    """A refusal in one line: its type, and the first node's own."""
    for node_id, node in kept.items():
        for error in node["errors"]:
            return f"{error_type}: node {node_id} ({node['class_type']}): {error['type']}"
    return error_type


def _kept_node_errors(node_errors: dict[str, Any]) -> dict[str, Any]:
    """What of ComfyUI's `node_errors` may be shown: no list of the server's files, no traceback, bounded."""
    kept: dict[str, Any] = {}
    for node_id, told in list(node_errors.items())[:_KEPT_NODES]:
        told = told if isinstance(told, dict) else {}
        raw = told.get("errors")
        kept[clean_text(node_id, 200)] = {
            "class_type": _text(told.get("class_type")),
            "errors": [_kept_error(e) for e in (raw if isinstance(raw, list) else [])[:_KEPT_ERRORS]],
        }
    return kept


def _kept_error(error: Any) -> dict[str, Any]:
    error = error if isinstance(error, dict) else {}
    extra = error.get("extra_info")
    extra = extra if isinstance(extra, dict) else {}
    kind = _text(error.get("type")) or "unknown"
    details = _text(error.get("details")) or ""
    if kind == "value_not_in_list":
        details = f"{extra.get('received_value')!r} is not on the server's list"
    elif kind in _TELLS_PATHS:
        details = _text(extra.get("exception_message")) or details.partition("\n")[0]
    return {
        "type": kind,
        "message": _text(error.get("message")) or kind,
        "details": clean_text(details, 500),
        "input_name": _text(extra.get("input_name")),
    }


def _first_culprit(kept: dict[str, Any]) -> tuple[str | None, str | None, str | None, str]:
    """The first named node, its class, its input, and one sentence about them."""
    for node_id, told in kept.items():
        first = told["errors"][0] if told["errors"] else {"message": "invalid", "details": "", "input_name": None}
        where = f"node {node_id} ({told['class_type']})"
        if first["input_name"]:
            where += f", input {first['input_name']}"
        tail = f" ({first['details']})" if first["details"] else ""
        return node_id, told["class_type"], first["input_name"], f"{where}: {first['message']}{tail}"
    return None, None, None, ""


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


def _said(body: bytes) -> str:
    return clean_text(body[:400].decode("utf-8", "replace"), 200).strip()


def _text(value: Any) -> str | None:
    return None if value is None else clean_text(str(value), 500)


# --- what a server knows of a job (sections 1, 2 and 5, step 3) ---


class Known(StrEnum):
    """What a server knows of a job, seen from one submit of it."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    EARLIER_ENDED = "earlier_ended"
    """The history holds an entry of another submit of this job; it hides whatever is open under the same id."""
    EARLIER_OPEN = "earlier_open"
    """Another submit of this job is pending or running."""
    UNKNOWN = "unknown"
    CANT_TELL = "cant_tell"


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """The node that failed, as ComfyUI tells it; its text is cleaned."""

    node_id: str
    node_class: str
    exception_type: str
    message: str
    traceback: list[str]
    """Server paths: for operators, never for clients."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A prompt that ComfyUI finished."""

    outcome: Literal["success", "error", "interrupted"]
    submit: UUID | None
    """The submit it was posted for; None for a prompt that is not ours."""
    outputs: dict[str, Any]
    error: ExecutionError | None
    exec_start_ms: int | None
    exec_end_ms: int | None
    graph: dict[str, Any]

    @property
    def seconds(self) -> float | None:
        """What the run took by its server's clock."""
        if self.exec_start_ms is None or self.exec_end_ms is None:
            return None
        return max(0.0, (self.exec_end_ms - self.exec_start_ms) / 1000)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question about a job, with the submit UUID seen on the item and a reason for the log."""

    known: Known
    entry: HistoryEntry | None = None
    submit: UUID | None = None
    why: str = ""
    away: bool = False
    """It can't tell because no whole answer came: the server's trouble, not this prompt's."""


# --- time (section 4) ---


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a lease, in seconds; only sets that keep the rules of section 4 can be made."""

    lease_s: float
    heartbeat_s: float
    margin_s: float
    post_timeout_s: float
    settle_s: float

    def __post_init__(self) -> None:
        """Raise ValueError, naming the numbers, where the times don't fit each other."""
        for name in ("lease_s", "heartbeat_s", "margin_s", "post_timeout_s", "settle_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name.removesuffix('_s')} must be a positive number of seconds, not {value}")
        slack = 1e-9 * self.lease_s
        if self.post_timeout_s + self.margin_s > self.lease_s - self.heartbeat_s + slack:
            raise ValueError(
                f"POST timeout {self.post_timeout_s:g} s + margin {self.margin_s:g} s must be at most "
                f"lease {self.lease_s:g} s - heartbeat {self.heartbeat_s:g} s"
            )
        if self.settle_s < self.post_timeout_s:
            raise ValueError(f"settle {self.settle_s:g} s must be at least the POST timeout {self.post_timeout_s:g} s")

    @classmethod
    def from_lease(
        cls,
        lease_s: float,
        heartbeat_s: float | None = None,
        margin_s: float | None = None,
        post_timeout_s: float | None = None,
        settle_s: float | None = None,
    ) -> Timing:
        """The times that follow from the lease, save those given. Raises ValueError naming the numbers."""
        return cls(
            lease_s=lease_s,
            heartbeat_s=lease_s / 3 if heartbeat_s is None else heartbeat_s,
            margin_s=lease_s / 6 if margin_s is None else margin_s,
            post_timeout_s=lease_s / 3 if post_timeout_s is None else post_timeout_s,
            settle_s=lease_s if settle_s is None else settle_s,
        )


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds on a clock that never jumps and, where the system has one, runs on while the machine sleeps."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


# --- the body of a POST (section 5, step 4) ---


def output_folder(job_id: UUID, submit_no: int) -> str:
    """The folder, under the server's output folder, that holds the files of one submit alone."""
    return f"genflow/{job_id}/{submit_no}"


def prompt_body(
    graph: Mapping[str, Any],
    *,
    job_id: UUID,
    submit: UUID,
    token: int,
    client_id: str,
    submit_no: int,
    extra_data: Mapping[str, Any] | None,
) -> bytes:
    """The JSON body of POST /prompt for one submit. `graph` is left as it was.

    No `number`: the same id and number twice is a 500 that was queued all the same. `client_id` is text, for an object
    there kills the whole server. Raises ValueError where a `filename_prefix` leaves its folder or a number is not
    finite; the door has refused both.
    """
    if not isinstance(client_id, str) or not client_id:
        raise ValueError("client_id must be a text that is not empty: anything else can kill the server")
    body = {
        "prompt": posted_graph(graph, job_id, submit_no),
        "prompt_id": str(job_id),
        "client_id": client_id,
        "extra_data": {
            **safe_extra_data(extra_data),
            "genflow": {"submit": str(submit), "token": token},
        },
    }
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode("ascii")


def posted_graph(graph: Mapping[str, Any], job_id: UUID, submit_no: int) -> dict[str, Any]:
    """The graph as one submit posts it. ValueError where a `filename_prefix` leaves its folder."""
    return {node_id: _own_files(node, job_id, submit_no) for node_id, node in graph.items()}


def _own_files(node: Any, job_id: UUID, submit_no: int) -> Any:
    """The node with file names of its own: else the node cache hands two jobs one file."""
    inputs = node.get("inputs") if isinstance(node, dict) else None
    if not isinstance(inputs, dict) or "filename_prefix" not in inputs:
        return node
    prefix = inputs["filename_prefix"]
    folder = output_folder(job_id, submit_no)
    if not isinstance(prefix, str):
        # An input that no node asks for is ignored, but makes the node's cache key this submit's own.
        return {**node, "inputs": {**inputs, "_nonce": folder}}
    if ".." in prefix.replace("\\", "/").split("/"):
        raise ValueError(f"filename_prefix {prefix!r} must not leave its folder by '..'")
    return {**node, "inputs": {**inputs, "filename_prefix": f"{folder}/{prefix}"}}


_OURS = frozenset({"client_id", "genflow", "create_time"})


def safe_extra_data(extra_data: Mapping[str, Any] | None) -> dict[str, Any]:
    """The client's `extra_data` without what would hurt a server or take our place in it.

    A `client_id` here would redirect the events or kill the server; an `extra_pnginfo` or `workflow` that is no object
    makes GET /api/jobs answer 500 for everybody; a `preview_method` that is no text fails the run.
    """
    safe = {key: value for key, value in (extra_data or {}).items() if key not in _OURS}
    pnginfo = safe.get("extra_pnginfo", {})
    if not isinstance(pnginfo, dict) or not isinstance(pnginfo.get("workflow", {}), dict):
        del safe["extra_pnginfo"]
    if not isinstance(safe.get("preview_method", ""), str):
        del safe["preview_method"]
    return safe


# --- whose graph is it (section 2) ---


def same_work(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether a graph found on a server is this job's own: alike but for what `prompt_body` and the upload put in.

    The number of the submit that posted it is not asked for: it may be lost with a database.
    """
    return set(ours) == set(theirs) and all(_same_node(ours[node_id], theirs[node_id]) for node_id in ours)


def _same_node(ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, dict) or not isinstance(theirs, dict) or ours.get("class_type") != theirs.get("class_type"):
        return False
    inputs, found = ours.get("inputs", {}), theirs.get("inputs", {})
    if not isinstance(inputs, dict) or not isinstance(found, dict):
        return bool(inputs == found)
    names = set(found) - ({"_nonce"} - set(inputs))
    return set(inputs) == names and all(_same_input(name, inputs[name], found[name]) for name in inputs)


_FOLDER_OF_A_SUBMIT = re.compile(r"genflow/[0-9a-f-]{36}/[0-9]+/")


def _same_input(name: str, ours: Any, theirs: Any) -> bool:
    if name == "filename_prefix" and isinstance(ours, str) and isinstance(theirs, str) and theirs.endswith(ours):
        folder = theirs[: len(theirs) - len(ours)]
        return not folder or _FOLDER_OF_A_SUBMIT.fullmatch(folder) is not None
    if isinstance(ours, dict) and ours.get("__type") == "core/ASSET":
        return isinstance(theirs, str)
    return bool(ours == theirs)
