"""What ComfyUI's answers about one job say; and that an unknown shape is never read as an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.comfy import messages
from genflow.comfy.messages import Malformed, QueueItem
from tests.unit import recorded

SUBMIT = uuid4()
OTHER = "6fe5e6c6-4b46-4f5e-9f02-3f7e0c6b2a11"


def history(name: str) -> tuple[UUID, dict[str, Any]]:
    told: dict[str, Any] = recorded.answer(name)
    return UUID(next(iter(told))), told


def test_history_and_jobs_tell_the_same_of_a_success() -> None:
    job_id, told = history("history success")
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert entry == messages.entry_of_job(recorded.answer("jobs success"))
    assert (entry.outcome, entry.submit, entry.error) == ("success", None, None)
    assert (entry.exec_start_ms, entry.exec_end_ms) == (1796082442526, 1796082442536)
    assert entry.outputs["3"]["images"][0]["filename"] == "ok_00001_.png"
    assert entry.graph["3"]["class_type"] == "SaveImage"


def test_history_and_jobs_tell_the_same_of_an_error() -> None:
    job_id, told = history("history error")
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert entry == messages.entry_of_job(recorded.answer("jobs error"))
    assert entry.outcome == "error"
    assert entry.error is not None
    assert (entry.error.node_id, entry.error.node_class, entry.error.exception_type) == (
        "2",
        "ImageToMask",
        "IndexError",
    )
    assert entry.error.message == "index 3 is out of bounds for dimension 3 with size 3\n"
    assert len(entry.error.traceback) == 2
    assert entry.exec_end_ms == 1796082551919


@pytest.mark.parametrize("stamp", [None, "1796082442526", True, 1.5, -1, 10**30])
def test_a_time_that_can_be_none_is_left_out(stamp: Any) -> None:
    job_id, told = history("history success")
    for message in told[str(job_id)]["status"]["messages"]:
        message[1]["timestamp"] = stamp
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert (entry.exec_start_ms, entry.exec_end_ms) == (None, None)


def test_an_interruption_is_told_apart_from_an_error_by_its_message() -> None:
    job_id, told = history("history interrupted")
    assert told[str(job_id)]["status"]["status_str"] == "error"
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert (entry.outcome, entry.error) == ("interrupted", None)
    assert entry.exec_end_ms == 1796082623113
    assert messages.entry_of_job(recorded.answer("jobs interrupted")).outcome == "interrupted"


def test_an_entry_tells_the_submit_it_was_posted_for() -> None:
    job_id, told = history("history success")
    told[str(job_id)]["prompt"][3]["genflow"] = {"submit": str(SUBMIT), "token": 3}
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert entry.submit == SUBMIT


@pytest.mark.parametrize(
    "extra_data",
    [None, {}, [], {"genflow": None}, {"genflow": {}}, {"genflow": {"submit": 3}}, {"genflow": {"submit": "x"}}],
    ids=str,
)
def test_a_prompt_that_is_not_ours_has_no_submit(extra_data: Any) -> None:
    assert messages.submit_of(extra_data) is None


def test_an_empty_history_answer_is_no_entry() -> None:
    assert messages.entry_of_history({}, uuid4()) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry.clear(),
        lambda entry: entry.pop("status"),
        lambda entry: entry.pop("outputs"),
        lambda entry: entry.update(outputs=[]),
        lambda entry: entry.update(prompt=[1, 2]),
        lambda entry: entry["prompt"].__setitem__(2, None),
        lambda entry: entry.update(status=None),
        lambda entry: entry["status"].update(status_str="done"),
        lambda entry: entry["status"].update(completed=False),
        lambda entry: entry["status"].update(messages=None),
    ],
)
def test_an_entry_of_another_shape_is_malformed(spoil: Callable[[dict[str, Any]], Any]) -> None:
    job_id, told = history("history success")
    spoil(told[str(job_id)])
    with pytest.raises(Malformed):
        messages.entry_of_history(told, job_id)


@pytest.mark.parametrize("answer", [None, [], "x", {"error": "x"}, {OTHER: {}}], ids=str)
def test_a_history_answer_about_something_else_is_malformed(answer: Any) -> None:
    with pytest.raises(Malformed):
        messages.entry_of_history(answer, uuid4())


def test_an_error_whose_node_is_not_told_is_still_an_error() -> None:
    job_id, told = history("history error")
    told[str(job_id)]["status"]["messages"] = []
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert entry.error is not None
    assert (entry.outcome, entry.error.exception_type) == ("error", "unknown")


def test_text_of_an_error_is_cleaned() -> None:
    job_id, told = history("history error")
    _, data = told[str(job_id)]["status"]["messages"][-1]
    data.update(exception_message="a\x00\ud800", traceback=["t\x00"] * 999, node_id=12, node_type=None)
    entry = messages.entry_of_history(told, job_id)
    assert entry is not None
    assert entry.error is not None
    entry.error.message.encode("utf-8")
    assert "\x00" not in entry.error.message + "".join(entry.error.traceback)
    assert len(entry.error.traceback) == messages.KEPT_TRACEBACK_LINES
    assert entry.error.node_id == "12"


def test_jobs_tells_pending_running_and_ended() -> None:
    told = {
        name: messages.job_status(answer, UUID(answer["id"]))
        for name in ("jobs pending", "jobs running", "jobs success", "jobs error", "jobs interrupted")
        if (answer := recorded.answer(name))
    }
    assert list(told.values()) == ["pending", "running", "ended", "ended", "ended"]


@pytest.mark.parametrize("changed", [{"status": "waiting"}, {"status": None}, {"id": str(uuid4())}, {"id": None}])
def test_a_job_of_another_shape_or_id_is_malformed(changed: dict[str, Any]) -> None:
    told = recorded.answer("jobs running")
    job_id = UUID(told["id"])
    with pytest.raises(Malformed):
        messages.job_status({**told, **changed}, job_id)


def test_only_comfyuis_own_not_found_is_not_found() -> None:
    assert messages.is_not_found(404, recorded.answer("jobs unknown"))
    assert not messages.is_not_found(200, recorded.answer("jobs unknown"))
    assert not messages.is_not_found(404, None)
    assert not messages.is_not_found(404, {"error": "Not found"})


def test_the_queue_tells_running_and_pending_items_of_one_job() -> None:
    told = recorded.answer("queue")
    running = UUID(told["queue_running"][0][1])
    pending = UUID(told["queue_pending"][0][1])
    told["queue_pending"][0][3]["genflow"] = {"submit": str(SUBMIT)}
    assert messages.queue_items(told, running) == [QueueItem(True, None)]
    assert messages.queue_items(told, pending) == [QueueItem(False, SUBMIT)]
    assert messages.queue_items(told, uuid4()) == []
    told["queue_pending"].append(told["queue_pending"][0])
    assert len(messages.queue_items(told, pending)) == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"queue_running": []},
        {"queue_running": [], "queue_pending": None},
        {"queue_running": [{}], "queue_pending": []},
        {"queue_running": [], "queue_pending": [[1, "id"]]},
    ],
    ids=str,
)
def test_a_queue_of_another_shape_is_malformed(answer: Any) -> None:
    with pytest.raises(Malformed):
        messages.queue_items(answer, uuid4())
