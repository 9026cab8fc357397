"""Each row of the table in docs/design/protocol.md, section 9."""

from __future__ import annotations

from typing import Any

import pytest

from genflow.failures import CLASS_OF, Failure, FailureClass, Policy, Then, decide, failure, from_execution, from_reply
from genflow.protocol import ExecutionError, PostReply, Reply

STEADY = Policy(jitter=False)


def then(
    what: Failure,
    policy: Policy = STEADY,
    *,
    attempts_spent: int = 1,
    resubmits: int = 0,
    oom_seen: bool = False,
    forced_runs: int = 0,
) -> tuple[Then, float, str]:
    made = decide(
        what,
        policy,
        attempts_spent=attempts_spent,
        resubmits=resubmits,
        oom_seen=oom_seen,
        forced_runs=forced_runs,
    )
    return made.then, made.delay_s, made.failure.code


def raised(kind: str, message: str) -> Failure:
    return from_execution(ExecutionError("7", "KSampler", kind, message, ["  File x\n"]))


@pytest.mark.parametrize(("kind", "code"), [(Reply.REFUSED, "invalid_workflow"), (Reply.HALF_VALID, "half_valid")])
def test_refused_400_and_half_valid_are_dead_letters_naming_the_node(kind: Reply, code: str) -> None:
    reply = PostReply(kind, 400, error_type="x", message="node 3 (A), input w: too small", node_id="3", node_class="A")
    made = from_reply(reply)
    assert (made.kind, made.node_id, made.node_class, made.quarantine) == (FailureClass.PERMANENT, "3", "A", None)
    assert made.message == "node 3 (A), input w: too small"
    assert then(made) == (Then.DEAD, 0.0, code)


def test_413_is_a_dead_letter() -> None:
    made = from_reply(PostReply(Reply.REFUSED, 413, error_type="too_large", message="100 MB"))
    assert made.kind is FailureClass.PERMANENT
    assert then(made) == (Then.DEAD, 0.0, "input_too_large")


@pytest.mark.parametrize(
    "what",
    [
        from_reply(PostReply(Reply.SETTLED_DOUBT, 500, message="500")),
        from_reply(PostReply(Reply.OPEN_DOUBT, message="reset")),
        failure("interrupted", "interrupted by someone else"),
        failure("run_timeout", "over 600 s"),
        failure("silence_timeout", "silent for 300 s"),
        failure("would_not_stop", "still there after 60 s"),
    ],
    ids=lambda what: str(what.code),
)
def test_doubt_interruption_and_timeouts_back_off_and_try_again(what: Failure) -> None:
    assert what.kind is FailureClass.TRANSIENT
    waits = [then(what, attempts_spent=n)[:2] for n in (1, 2, 3, 4)]
    assert waits == [(Then.RETRY, 2.0), (Then.RETRY, 4.0), (Then.RETRY, 8.0), (Then.DEAD, 0.0)]


def test_back_off_is_capped_and_spread_by_jitter() -> None:
    what = failure("run_timeout", "over")
    capped = Policy(max_attempts=20, base_s=2, cap_s=5, jitter=False)
    assert then(what, capped, attempts_spent=10) == (Then.RETRY, 5.0, "run_timeout")
    drawn = {then(what, Policy(max_attempts=20), attempts_spent=3)[1] for _ in range(50)}
    assert len(drawn) > 40
    assert all(0 <= delay <= 8 for delay in drawn)


@pytest.mark.parametrize(
    "what",
    [
        from_reply(PostReply(Reply.REFUSED, error_type="connect", message="refused")),
        from_reply(PostReply(Reply.REFUSED, error_type="withheld", message="no room")),
        from_reply(PostReply(Reply.REFUSED_IN_FRONT, 401, message="answered 401")),
        failure("server_unreachable", "down"),
        failure("server_cant_tell", "502"),
        failure("server_runs_nothing", "pending for long"),
    ],
    ids=lambda what: str(what.code),
)
@pytest.mark.parametrize("attempts_spent", [0, 4, 99])
def test_server_trouble_spends_no_attempt_and_never_kills_a_job(what: Failure, attempts_spent: int) -> None:
    assert what.kind is FailureClass.SERVER_TROUBLE
    decided, delay, code = then(what, attempts_spent=attempts_spent)
    assert (decided, code) == (Then.RELEASE, what.code)
    assert delay > 0


def test_something_in_front_quarantines_with_its_status_and_a_plain_connect_does_not() -> None:
    front = from_reply(PostReply(Reply.REFUSED_IN_FRONT, 429, message="answered 429"))
    assert front.quarantine is not None
    assert "429" in front.quarantine
    assert from_reply(PostReply(Reply.REFUSED, error_type="connect", message="refused")).quarantine is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("torch.OutOfMemoryError", "Allocation on device \nThis error means you ran out of memory on your GPU."),
        ("torch.cuda.OutOfMemoryError", ""),
        ("torch.OutOfMemoryError", "\n"),
        ("RuntimeError", "Allocation on device 0 would exceed allowed memory."),
        ("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("torch.AcceleratorError", "CUDA error: out of memory"),
        ("RuntimeError", "HIP out of memory"),
        ("RuntimeError", "MPS backend out of memory"),
        ("MemoryError", ""),
    ],
)
def test_out_of_memory_by_type_or_message_gets_exactly_one_more_attempt(kind: str, message: str) -> None:
    made = raised(kind, message)
    assert (made.kind, made.code, made.quarantine) == (FailureClass.OOM, "out_of_memory", None)
    assert then(made)[0] is Then.RETRY
    assert then(made, attempts_spent=2, oom_seen=True) == (Then.DEAD, 0.0, "out_of_memory")
    assert then(made, Policy(max_attempts=1)) == (Then.DEAD, 0.0, "out_of_memory")
    assert then(made, Policy(oom="fail")) == (Then.DEAD, 0.0, "out_of_memory")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
        ("torch.AcceleratorError", "anything"),
        ("RuntimeError", "CUDA error: device-side assert triggered"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
        ("RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        ("RuntimeError", "CUDA driver error: unknown error"),
        ("RuntimeError", "HIP error: invalid device function"),
    ],
)
def test_a_cuda_fault_is_retried_and_quarantines_its_server(kind: str, message: str) -> None:
    made = raised(kind, message)
    assert (made.kind, made.code, made.quarantine) == (FailureClass.TRANSIENT, "cuda_fault", "CUDA fault")
    assert then(made) == (Then.RETRY, 2.0, "cuda_fault")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("IndexError", "index 3 is out of bounds for dimension 3 with size 3\n"),
        ("Exception", "InsightFace: No face detected."),
        ("safetensors._safetensors_rust.SafetensorError", "Error while deserializing header: header too small"),
        ("AssertionError", "Torch not compiled with CUDA enabled"),
    ],
)
def test_any_other_execution_error_is_a_dead_letter_with_node_class_type_and_message(kind: str, message: str) -> None:
    made = raised(kind, message)
    assert (made.kind, made.node_id, made.node_class) == (FailureClass.PERMANENT, "7", "KSampler")
    assert made.message == f"node 7 (KSampler): {kind}: {message.strip()}"
    assert made.traceback == ["  File x\n"]
    assert then(made) == (Then.DEAD, 0.0, "node_execution_error")


def test_an_exception_that_says_nothing_still_names_node_and_type() -> None:
    assert raised("EOFError", "\n").message == "node 7 (KSampler): EOFError"


def test_text_of_an_execution_error_is_cleaned_and_bounded() -> None:
    made = from_execution(ExecutionError("7\x00", "A\ud800", "E", "m\x00" * 9_999, ["t\x00" * 9_999] * 999))
    shown = made.message + str(made.node_id) + str(made.node_class) + "".join(made.traceback or [])
    assert "\x00" not in shown
    shown.encode("utf-8")
    assert len(made.message) <= 4_000
    assert len(shown) < 200_000


def test_lost_is_resubmitted_so_often_and_then_a_dead_letter() -> None:
    lost = failure("lost", "nobody knows it")
    assert lost.kind is FailureClass.LOST
    assert lost.quarantine == "several processes behind one URL, or its queue was cleared"
    assert [then(lost, resubmits=n) for n in (0, 2, 3)] == [
        (Then.RESUBMIT, 0.0, "lost"),
        (Then.RESUBMIT, 0.0, "lost"),
        (Then.DEAD, 0.0, "lost_too_often"),
    ]
    assert then(lost, attempts_spent=99)[0] is Then.RESUBMIT


def test_a_server_that_runs_nothing_is_quarantined() -> None:
    assert failure("server_runs_nothing", "pending for long").quarantine == "answers HTTP but runs nothing"
    assert failure("would_not_stop", "still there").quarantine == "a run would not stop"


def test_a_gone_output_gets_one_forced_run_and_then_a_dead_letter() -> None:
    gone = failure("output_gone", "0 bytes")
    assert gone.kind is FailureClass.GONE
    assert then(gone, attempts_spent=4, resubmits=3) == (Then.RESUBMIT, 0.0, "output_gone")
    assert then(gone, forced_runs=1) == (Then.DEAD, 0.0, "output_unavailable")


def test_too_many_takeovers_are_a_dead_letter() -> None:
    assert then(failure("kills_its_workers", "6 takeovers")) == (Then.DEAD, 0.0, "kills_its_workers")


def test_a_dead_letters_new_code_has_its_own_class() -> None:
    made = decide(failure("lost", "x"), STEADY, attempts_spent=1, resubmits=3, oom_seen=False)
    assert made.failure.kind is CLASS_OF["lost_too_often"] is FailureClass.PERMANENT


def test_an_accepted_reply_is_no_failure() -> None:
    with pytest.raises(ValueError, match="accepted"):
        from_reply(PostReply(Reply.ACCEPTED, 200, number=1.0))


def test_a_policy_survives_its_json_and_takes_defaults_for_what_is_absent() -> None:
    policy = Policy(max_attempts=2, oom="fail", base_s=0.5)
    assert Policy.from_json(policy.to_json()) == policy
    assert Policy.from_json({"max_attempts": 9, "of_a_newer_program": 1}) == Policy(max_attempts=9)
    assert Policy() == Policy(
        max_attempts=4,
        base_s=2,
        cap_s=60,
        jitter=True,
        oom="retry",
        run_timeout_s=600,
        silence_timeout_s=300,
        max_resubmits=3,
        max_takeovers=5,
    )


@pytest.mark.parametrize(
    "kept",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"max_resubmits": -1},
        {"base_s": -1},
        {"cap_s": float("inf")},
        {"run_timeout_s": float("nan")},
        {"silence_timeout_s": "300"},
        {"oom": "maybe"},
        {"jitter": "no"},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(kept: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(kept))):
        Policy.from_json(kept)
