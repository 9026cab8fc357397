"""What a failure means for its job, its attempt and its server: the table of docs/design/protocol.md, section 9.

Pure. A failure has a class, which decides what comes next, and a stable code, which a client or a program may rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any, Literal

from genflow.backoff import retry_delay
from genflow.errors import clean_text
from genflow.protocol import ExecutionError, PostReply, Reply


class FailureClass(StrEnum):
    """Whose trouble a failure is, and so what comes next."""

    PERMANENT = "permanent"
    """The job's own: no server and no time will change it."""
    TRANSIENT = "transient"
    """May pass: back-off, next attempt."""
    SERVER_TROUBLE = "server_trouble"
    """The server's: its breaker opens, the job spends no attempt."""
    OOM = "oom"
    LOST = "lost"
    """Accepted, and now known to nobody."""
    GONE = "gone"
    """The run succeeded, its file is not to be had."""


CLASS_OF: dict[str, FailureClass] = {
    "invalid_workflow": FailureClass.PERMANENT,
    "half_valid": FailureClass.PERMANENT,
    "input_too_large": FailureClass.PERMANENT,
    "input_unavailable": FailureClass.PERMANENT,
    "sealing_key_missing": FailureClass.PERMANENT,
    "server_unreadable": FailureClass.PERMANENT,
    "node_execution_error": FailureClass.PERMANENT,
    "lost_too_often": FailureClass.PERMANENT,
    "output_unavailable": FailureClass.PERMANENT,
    "kills_its_workers": FailureClass.PERMANENT,
    "submit_unknown": FailureClass.TRANSIENT,
    "input_gone": FailureClass.TRANSIENT,
    "interrupted": FailureClass.TRANSIENT,
    "run_timeout": FailureClass.TRANSIENT,
    "silence_timeout": FailureClass.TRANSIENT,
    "would_not_stop": FailureClass.TRANSIENT,
    "cuda_fault": FailureClass.TRANSIENT,
    "server_unreachable": FailureClass.SERVER_TROUBLE,
    "server_cant_tell": FailureClass.SERVER_TROUBLE,
    "server_runs_nothing": FailureClass.SERVER_TROUBLE,
    "refused_in_front": FailureClass.SERVER_TROUBLE,
    "withheld": FailureClass.SERVER_TROUBLE,
    "out_of_memory": FailureClass.OOM,
    "lost": FailureClass.LOST,
    "output_gone": FailureClass.GONE,
}
"""Every code and its class."""

QUARANTINES: dict[str, str] = {
    "would_not_stop": "a run would not stop",
    "cuda_fault": "CUDA fault",
    "server_runs_nothing": "answers HTTP but runs nothing",
    "lost": "several processes behind one URL, or its queue was cleared",
}
"""Why a server takes no new work after a failure of this code."""


NEEDS_RUN = frozenset(QUARANTINES[code] for code in ("would_not_stop", "cuda_fault", "server_runs_nothing"))
"""Reasons for a quarantine that only a prompt that really ran there can end: time and a restart prove nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: its class, its stable code, a sentence, and where it happened."""

    kind: FailureClass
    code: str
    message: str
    node_id: str | None = None
    node_class: str | None = None
    quarantine: str | None = None
    """Why the server takes no new work; None leaves it alone."""
    traceback: list[str] | None = None
    """For operators, never for clients."""
    brief: str = ""
    """One line for operators: what the server said, or what was waited for."""


MAY_LACK_INPUT = frozenset({"invalid_workflow", "half_valid", "node_execution_error"})
"""Failures that may come of an input that somebody deleted on the server: before they are believed, it is asked."""


def failure(
    code: str,
    message: str,
    *,
    brief: str = "",
    node_id: str | None = None,
    node_class: str | None = None,
    quarantine: str | None = None,
    traceback: list[str] | None = None,
) -> Failure:
    """The failure of a code of `CLASS_OF`, with that code's class and, unless given, its reason to quarantine.

    A `lost` on a new boot is a plain restart: the caller drops the quarantine there with `dataclasses.replace`.
    """
    return Failure(
        kind=CLASS_OF[code],
        code=code,
        message=clean_text(message),
        node_id=node_id,
        node_class=node_class,
        quarantine=quarantine or QUARANTINES.get(code),
        traceback=traceback,
        brief=brief or message.partition("\n")[0],
    )


def from_reply(reply: PostReply) -> Failure:
    """The failure in a POST's end. A doubt is one only once the server was asked and knew nothing.

    Raises ValueError for an accepted reply, which is no failure.
    """
    if reply.kind is Reply.ACCEPTED:
        raise ValueError("an accepted prompt is no failure")
    status = "" if reply.status is None else f" {reply.status}"
    return replace(_of_reply(reply), brief=f"POST /prompt{status}, {reply.said or reply.message}")


def _of_reply(reply: PostReply) -> Failure:
    if reply.kind in (Reply.SETTLED_DOUBT, Reply.OPEN_DOUBT):
        return failure("submit_unknown", f"the prompt's POST ended in doubt and it is not there: {reply.message}")
    if reply.kind is Reply.REFUSED_IN_FRONT:
        return failure("refused_in_front", reply.message, quarantine=f"something in front answered {reply.status}")
    if reply.kind is Reply.HALF_VALID:
        return failure("half_valid", reply.message, node_id=reply.node_id, node_class=reply.node_class)
    if reply.error_type in ("withheld", "guard_stale"):
        return failure("withheld", reply.message)
    if reply.error_type == "connect":
        return failure("server_unreachable", reply.message)
    if reply.status == 413:
        return failure("input_too_large", f"the server refuses a body of this size: {reply.message}")
    return failure("invalid_workflow", reply.message, node_id=reply.node_id, node_class=reply.node_class)


_OOM_TYPES = ("OutOfMemoryError", "MemoryError")
_OOM_SAYS = ("allocation on device", "out of memory")
_CUDA_TYPES = ("AcceleratorError",)
_CUDA_SAYS = (
    "cuda error",
    "cuda driver error",
    "cuda runtime error",
    "hip error",
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "misaligned address",
    "uncorrectable ecc",
    "cublas_status",
    "cublas error",
    "cusolver_status",
    "cusparse_status",
    "cudnn_status",
    "cudnn error",
)


def from_execution(error: ExecutionError) -> Failure:
    """The failure in an `execution_error`.

    Out of memory is looked for before CUDA faults, for PyTorch says "CUDA error: out of memory" too. The message
    always names node and type: some exceptions say nothing else.
    """
    name = error.exception_type.rpartition(".")[2]
    says = error.message.lower()
    if name in _OOM_TYPES or any(words in says for words in _OOM_SAYS):
        code = "out_of_memory"
    elif name in _CUDA_TYPES or any(words in says for words in _CUDA_SAYS):
        code = "cuda_fault"
    else:
        code = "node_execution_error"
    where = f"node {error.node_id} ({error.node_class}): {error.exception_type}"
    said = error.message.strip()
    return failure(
        code,
        f"{where}: {said}" if said else where,
        brief=clean_text("execution_error, " + (f"{where}: {error.message.partition(chr(10))[0]}" if said else where)),
        node_id=clean_text(error.node_id, 200),
        node_class=clean_text(error.node_class, 200),
        traceback=[clean_text(line, 1_000) for line in error.traceback[:100]],
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how long a job is tried. Kept with the job, so that a later setting never changes it."""

    max_attempts: int = 4
    base_s: float = 2.0
    cap_s: float = 60.0
    jitter: bool = True
    oom: Literal["retry", "fail"] = "retry"
    run_timeout_s: float = 600.0
    silence_timeout_s: float = 300.0
    max_resubmits: int = 3
    max_takeovers: int = 5
    scrub: bool = True
    """Whether what an ended job left on its servers is taken away there."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the number, where a bound makes no sense."""
        if self.oom not in ("retry", "fail"):
            raise ValueError(f'oom must be "retry" or "fail", not {self.oom!r}')
        for name in ("jitter", "scrub"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")
        for name, least in (("max_attempts", 1), ("max_resubmits", 0), ("max_takeovers", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
        for name in ("base_s", "cap_s", "run_timeout_s", "silence_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number of seconds of at least 0, not {value!r}")
            if value == 0 and name.endswith("timeout_s"):
                raise ValueError(f"{name} must be a positive number of seconds, not 0")

    def to_json(self) -> dict[str, Any]:
        """The policy as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Policy:
        """The policy kept with a job; what is absent takes its default, what a newer program added is passed over."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in kept.items() if key in known})


class Then(StrEnum):
    """What comes after a failure."""

    RETRY = "retry"
    """The next attempt, after the delay."""
    DEAD = "dead"
    """A dead letter."""
    RELEASE = "release"
    """Back to the queue, no attempt spent: another server, or the same one later."""
    RESUBMIT = "resubmit"
    """The same attempt posts the same id again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next, after how many seconds, and the failure to write down (a dead letter's code may differ)."""

    then: Then
    delay_s: float
    failure: Failure


RELEASE_DELAY_S = 1.0
"""Keeps a job from spinning on a server whose breaker has not opened yet."""


def decide(
    failure: Failure,
    policy: Policy,
    *,
    attempts_spent: int,
    resubmits: int,
    oom_seen: bool,
    forced_runs: int = 0,
) -> Decision:
    """What comes after a failure.

    `attempts_spent` counts the failed attempt itself, `resubmits` and `forced_runs` (new runs because an output was
    gone) those already made, and `oom_seen` says that an earlier attempt of this job ran out of memory.
    """
    match failure.kind:
        case FailureClass.SERVER_TROUBLE:
            return Decision(Then.RELEASE, RELEASE_DELAY_S, failure)
        case FailureClass.TRANSIENT:
            return _retry(failure, policy, attempts_spent)
        case FailureClass.OOM if policy.oom == "retry" and not oom_seen:
            return _retry(failure, policy, attempts_spent)
        case FailureClass.LOST if resubmits < policy.max_resubmits:
            return Decision(Then.RESUBMIT, 0.0, failure)
        case FailureClass.LOST:
            return _dead(failure, "lost_too_often")
        case FailureClass.GONE if forced_runs == 0:
            return Decision(Then.RESUBMIT, 0.0, failure)
        case FailureClass.GONE:
            return _dead(failure, "output_unavailable")
        case FailureClass.OOM if oom_seen:
            return _gave_up(failure, attempts_spent)
        case _:
            return Decision(Then.DEAD, 0.0, failure)


def _gave_up(failure: Failure, attempts_spent: int) -> Decision:
    brief = f"gave up after {attempts_spent} attempts, last: {failure.brief}"
    return Decision(Then.DEAD, 0.0, replace(failure, brief=brief))


def _retry(failure: Failure, policy: Policy, attempts_spent: int) -> Decision:
    if attempts_spent >= policy.max_attempts:
        return _gave_up(failure, attempts_spent)
    delay = retry_delay(max(attempts_spent, 1), base_s=policy.base_s, cap_s=policy.cap_s, jitter=policy.jitter)
    return Decision(Then.RETRY, delay, failure)


def _dead(failure: Failure, code: str) -> Decision:
    return Decision(Then.DEAD, 0.0, replace(failure, kind=CLASS_OF[code], code=code))
