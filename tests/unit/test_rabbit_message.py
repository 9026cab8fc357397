"""A job as a message: what is read, what is refused, and that numbers come through as they were written."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from genflow.errors import GenflowError
from genflow.intake.rabbit_message import MessageJob, read_message, write_message

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
GRAPH = '{"3": {"class_type": "KSampler", "inputs": {"seed": 18446744073709551615, "cfg": 6.50}}}'


def read(text: str | bytes, message_id: str | None = None, *, max_workflow_bytes: int = 10_000) -> MessageJob:
    raw = text.encode() if isinstance(text, str) else text
    return read_message(raw, message_id, max_workflow_bytes=max_workflow_bytes)


def test_a_workflow_is_kept_as_it_was_written() -> None:
    line = read(f'{{"id": "{ID}", "workflow": {GRAPH}}}').job
    assert (line.id, line.workflow, line.metadata, line.priority) == (UUID(ID), GRAPH, {}, 0)


def test_what_is_written_is_read_again() -> None:
    raw = write_message(UUID(ID), GRAPH, metadata={"a": "ä"}, priority=-3)
    line = read(raw).job
    assert (line.id, line.workflow, line.metadata, line.priority) == (UUID(ID), GRAPH, {"a": "ä"}, -3)
    assert json.loads(write_message(UUID(ID), GRAPH, metadata={}, priority=0)).keys() == {"id", "workflow"}


def test_without_any_id_the_same_work_is_the_same_job() -> None:
    first = read(f'{{"workflow": {GRAPH}}}').job.id
    assert read(f'{{"workflow": {GRAPH.replace(" ", "")}}}').job.id == first
    assert read(f'{{"workflow": {GRAPH}, "set": {{"3.cfg": 7}}}}').job.id != first


def test_the_message_id_stands_for_an_id_left_out() -> None:
    assert read(f'{{"workflow": {GRAPH}}}', message_id=ID).job.id == UUID(ID)
    assert read(f'{{"id": "{ID}", "workflow": {GRAPH}}}', message_id=ID).job.id == UUID(ID)


def test_set_changes_inputs_and_nothing_else() -> None:
    line = read(f'{{"id": "{ID}", "workflow": {GRAPH}, "set": {{"3.seed": 18446744073709551614}}}}').job
    assert json.loads(line.workflow)["3"]["inputs"] == {"seed": 18446744073709551614, "cfg": 6.5}
    assert "18446744073709551614" in line.workflow


def test_the_same_body_is_told_from_another() -> None:
    same = read(f'{{"workflow":{GRAPH.replace(" ", "")}, "id": "{ID}", "priority": 5}}')
    assert same.body_hash == read(f'{{"id": "{OTHER}", "workflow": {GRAPH}}}').body_hash, "spaces, urgency, id"
    assert same.body_hash != read(f'{{"id": "{ID}", "workflow": {GRAPH}, "set": {{"3.cfg": 7}}}}').body_hash
    assert same.body_hash != read(f'{{"id": "{ID}", "workflow": {GRAPH}, "metadata": {{"a": "b"}}}}').body_hash


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("not json", "invalid_message", "no JSON object"),
        (b"\xff", "invalid_message", "UTF-8"),
        ("[]", "invalid_message", "no JSON object"),
        (f'{{"id": "{ID}"}}', "invalid_message", "“workflow” must be"),
        (f'{{"id": "{ID}", "workflow": "a.json"}}', "invalid_message", "holds the workflow itself"),
        (f'{{"id": "{ID.upper()}", "workflow": {GRAPH}}}', "invalid_message", "lowercase UUID"),
        (f'{{"id": 7, "workflow": {GRAPH}}}', "invalid_message", "lowercase UUID"),
        (f'{{"id": "{ID}", "workflow": {GRAPH}, "piority": 1}}', "invalid_message", "piority"),
        (f'{{"id": "{ID}", "workflow": {GRAPH}, "priority": 101}}', "invalid_message", "-100 to 100"),
        (f'{{"id": "{ID}", "workflow": {{}}}}', "invalid_workflow", "no nodes"),
        (f'{{"id": "{ID}", "workflow": {{"3": NaN}}}}', "invalid_workflow", "NaN"),
        (f'{{"id": "{ID}", "workflow": {GRAPH}, "set": {{"3.seeed": 1}}}}', "invalid_set", "seed, cfg"),
        (f'{{"id": "{ID}", "workflow": {GRAPH}, "metadata": {{"a": 1}}}}', "metadata_invalid", "must be a text"),
    ],
)
def test_what_is_no_job_is_refused_with_the_reason(text: str | bytes, code: str, says: str) -> None:
    with pytest.raises(GenflowError) as refused:
        read(text)
    assert refused.value.code == code
    assert says in refused.value.message


def test_two_ids_that_differ_are_refused_with_both() -> None:
    with pytest.raises(GenflowError, match=f"{ID}.*{OTHER}"):
        read(f'{{"id": "{ID}", "workflow": {GRAPH}}}', message_id=OTHER)


def test_what_is_too_large_is_not_even_read() -> None:
    with pytest.raises(GenflowError, match="at most 80 are accepted"):
        read(f'{{"id": "{ID}", "workflow": {GRAPH}}}', max_workflow_bytes=80)
    with pytest.raises(GenflowError, match="at most 262224 are read"):
        read(b"[" * 300_000, max_workflow_bytes=80)
