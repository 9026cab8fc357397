"""An operator reads one line per failure: what the server said, or what was waited for, and how often it was tried."""

from __future__ import annotations

import json
from uuid import UUID

from genflow.failures import Failure, Policy, Then, decide, failure, from_execution, from_reply
from genflow.protocol import ExecutionError, classify_post

JOB = UUID("00000003-0000-4000-8000-000000000000")
AIOHTTP = {"Server": "Python/3.11 aiohttp/3.9"}


def refused(status: int, body: bytes) -> Failure:
    return from_reply(classify_post(JOB, status, AIOHTTP, body))


def test_a_500_is_its_first_line() -> None:
    told = refused(500, b"500 Internal Server Error\n\nServer got itself in trouble")
    assert told.brief == "POST /prompt 500, 500 Internal Server Error"


def test_a_400_names_its_type_its_node_and_the_nodes_own_error() -> None:
    body = {
        "error": {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation"},
        "node_errors": {
            "3": {"class_type": "KSampler", "errors": [{"type": "exception_during_inner_validation", "message": "x"}]}
        },
    }
    assert refused(400, json.dumps(body).encode()).brief == (
        "POST /prompt 400, prompt_outputs_failed_validation: node 3 (KSampler): exception_during_inner_validation"
    )


def test_an_error_of_a_node_is_the_first_line_of_what_it_said() -> None:
    oom = ExecutionError("2", "ImageInvert", "torch.OutOfMemoryError", "Allocation on device \nThis error means …", [])
    assert from_execution(oom).brief == (
        "execution_error, node 2 (ImageInvert): torch.OutOfMemoryError: Allocation on device "
    )


def test_a_last_attempt_says_how_many_there_were() -> None:
    late = failure("run_timeout", "the run was stopped on gpu0 after 1 s", brief="timed out after 1 s")
    for spent, then, brief in (
        (1, Then.RETRY, "timed out after 1 s"),
        (2, Then.DEAD, "gave up after 2 attempts, last: timed out after 1 s"),
    ):
        decision = decide(late, Policy(max_attempts=2), attempts_spent=spent, resubmits=0, oom_seen=False)
        assert (decision.then, decision.failure.brief) == (then, brief)


def test_what_fails_at_once_was_not_given_up() -> None:
    told = failure("input_too_large", "the server refuses an input of this size: 413")
    decision = decide(told, Policy(), attempts_spent=1, resubmits=0, oom_seen=False)
    assert decision.failure.brief == "the server refuses an input of this size: 413"
