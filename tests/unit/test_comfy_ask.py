"""Asking a server about one job. "Unknown" lets a job be posted again, so only ComfyUI itself may say it."""

from __future__ import annotations

import json
import socket
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web

from genflow.comfy import ServerAnswered, ServerUnreachable
from genflow.protocol import Answer, Known
from tests.unit import recorded
from tests.unit.wire import Conversation, Double, client, double, peer

SUBMIT = uuid4()
OTHER = uuid4()
FIVE_HUNDRED = (500, b"500 Internal Server Error")


def ours(submit: UUID = SUBMIT) -> dict[str, Any]:
    return {"genflow": {"submit": str(submit), "token": 1}}


def queue(job_id: UUID, *, running: UUID | None = None, pending: UUID | None = None) -> tuple[int, Any]:
    def items(submit: UUID | None) -> list[Any]:
        return [] if submit is None else [[7, str(job_id), {}, ours(submit), ["3"]]]

    return 200, {"queue_running": items(running), "queue_pending": items(pending)}


def job(name: str, submit: UUID = SUBMIT) -> tuple[UUID, tuple[int, Any]]:
    told = recorded.answer(f"jobs {name}")
    if "workflow" in told:
        told["workflow"]["extra_data"].update(ours(submit))
    return UUID(told["id"]), (200, told)


def history(submit: UUID = SUBMIT) -> tuple[UUID, tuple[int, Any]]:
    told = recorded.answer("history success")
    job_id = next(iter(told))
    told[job_id]["prompt"][3].update(ours(submit))
    return UUID(job_id), (200, told)


async def ask(made: Double, job_id: UUID, *, doubt: bool = False) -> Answer:
    return await made.client.ask(job_id, SUBMIT, doubt=doubt)


async def test_unknown_is_comfyuis_own_not_found() -> None:
    async with double() as made:
        made.knows_jobs_route()
        assert (await ask(made, uuid4())).known is Known.UNKNOWN
        assert (await ask(made, uuid4(), doubt=True)).known is Known.UNKNOWN
        assert len(made.asked) == 3, "that the route exists is learned once"


@pytest.mark.parametrize(("name", "known"), [("pending", Known.PENDING), ("running", Known.RUNNING)])
async def test_without_doubt_an_open_job_counts_as_this_submit_and_the_queue_is_not_read(
    name: str, known: Known
) -> None:
    job_id, told = job(name)
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = told
        assert (await ask(made, job_id)).known is known
        assert "GET /queue" not in made.asked


@pytest.mark.parametrize(
    ("place", "known", "submit"),
    [
        ({"running": SUBMIT}, Known.RUNNING, SUBMIT),
        ({"pending": SUBMIT}, Known.PENDING, SUBMIT),
        ({"running": OTHER}, Known.EARLIER_OPEN, OTHER),
        ({"pending": OTHER}, Known.EARLIER_OPEN, OTHER),
        ({"running": OTHER, "pending": SUBMIT}, Known.PENDING, SUBMIT),
        ({"running": SUBMIT, "pending": OTHER}, Known.RUNNING, SUBMIT),
    ],
)
async def test_in_doubt_an_open_job_is_told_apart_by_its_uuid(
    place: dict[str, UUID], known: Known, submit: UUID
) -> None:
    job_id, told = job("running")
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = told
        made.answers["GET /queue"] = queue(job_id, **place)
        answer = await ask(made, job_id, doubt=True)
        assert (answer.known, answer.submit) == (known, submit)


async def test_in_doubt_a_job_that_ends_between_the_two_reads_is_asked_again() -> None:
    job_id, ended = job("success")
    _, running = job("running")
    running[1]["id"] = str(job_id)
    answers = [running, ended]

    async def moves(request: web.Request) -> web.Response:
        return web.json_response(answers.pop(0)[1])

    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = moves
        made.answers["GET /queue"] = queue(job_id)
        assert (await ask(made, job_id, doubt=True)).known is Known.ENDED


async def test_a_job_that_never_stands_where_it_is_said_to_be_cant_be_told() -> None:
    job_id, running = job("running")
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = running
        made.answers["GET /queue"] = queue(job_id)
        assert (await ask(made, job_id, doubt=True)).known is Known.CANT_TELL
        assert len(made.asked) < 10


@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("name", ["success", "error", "interrupted"])
async def test_an_ended_job_is_mine_by_its_uuid(name: str, doubt: bool) -> None:
    job_id, told = job(name)
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = told
        answer = await ask(made, job_id, doubt=doubt)
        assert (answer.known, answer.submit) == (Known.ENDED, SUBMIT)
        assert answer.entry is not None
        assert answer.entry.outcome == name


async def test_an_entry_of_another_submit_or_of_none_is_an_earlier_one() -> None:
    for submit in (OTHER, None):
        job_id, told = job("success", OTHER)
        if submit is None:
            del told[1]["workflow"]["extra_data"]["genflow"]
        async with double() as made:
            made.knows_jobs_route()
            made.answers[f"GET /api/jobs/{job_id}"] = told
            answer = await ask(made, job_id)
            assert (answer.known, answer.submit) == (Known.EARLIER_ENDED, submit)
            assert answer.entry is not None
            assert answer.entry.graph["3"]["class_type"] == "SaveImage"


async def test_where_the_jobs_route_fails_for_good_queue_and_history_tell() -> None:
    job_id, told = history()
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = FIVE_HUNDRED
        made.answers["GET /queue"] = queue(job_id)
        made.answers[f"GET /history/{job_id}"] = told
        assert (await ask(made, job_id)).known is Known.ENDED
        made.answers[f"GET /history/{job_id}"] = (200, {})
        assert (await ask(made, job_id)).known is Known.UNKNOWN


# An older server: no /api/jobs at all.


async def test_an_older_server_is_asked_for_the_queue_first_and_the_history_after_it() -> None:
    job_id, told = history()
    async with double() as made:
        made.answers["GET /queue"] = queue(job_id)
        made.answers[f"GET /history/{job_id}"] = told
        assert (await ask(made, job_id)).known is Known.ENDED
        await ask(made, job_id)
        assert made.asked[1:] == ["GET /queue", f"GET /history/{job_id}"] * 2


async def test_an_older_server_knows_nothing_only_if_neither_place_holds_the_job() -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers["GET /queue"] = queue(uuid4(), running=SUBMIT)
        made.answers[f"GET /history/{job_id}"] = (200, {})
        assert (await ask(made, job_id)).known is Known.UNKNOWN


@pytest.mark.parametrize(
    ("place", "known"),
    [
        ({"running": SUBMIT}, Known.RUNNING),
        ({"pending": SUBMIT}, Known.PENDING),
        ({"pending": OTHER}, Known.EARLIER_OPEN),
    ],
)
async def test_an_older_server_tells_open_items_apart_by_their_uuid(place: dict[str, UUID], known: Known) -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers["GET /queue"] = queue(job_id, **place)
        made.answers[f"GET /history/{job_id}"] = (200, {})
        assert (await ask(made, job_id)).known is known


async def test_an_earlier_entry_is_told_before_what_is_open() -> None:
    job_id, told = history(OTHER)
    async with double() as made:
        made.answers["GET /queue"] = queue(job_id, pending=SUBMIT)
        made.answers[f"GET /history/{job_id}"] = told
        assert (await ask(made, job_id)).known is Known.EARLIER_ENDED


async def test_a_queue_poisoned_with_nan_is_read() -> None:
    job_id = uuid4()
    told = json.dumps({"queue_running": [[float("nan"), str(job_id), {}, ours(), []]], "queue_pending": []})
    assert "NaN" in told
    async with double() as made:
        made.answers["GET /queue"] = (200, told.encode())
        made.answers[f"GET /history/{job_id}"] = (200, {})
        assert (await ask(made, job_id)).known is Known.RUNNING


# Everything else.


@pytest.mark.parametrize(
    "said",
    [
        (404, b"<html>nginx: not found</html>"),
        (404, {"error": "not found"}),
        (404, b"404: Not Found"),
        (502, b"bad gateway"),
        (503, b""),
        (401, {"error": "Job not found"}),
        (200, b"<html>starting</html>"),
        (200, {"error": "Job not found"}),
        (200, {}),
        (200, {"id": "6fe5e6c6-4b46-4f5e-9f02-3f7e0c6b2a11", "status": "pending"}),
        (302, b""),
    ],
    ids=str,
)
async def test_any_other_answer_about_the_job_cant_be_told(said: tuple[int, Any]) -> None:
    job_id = uuid4()
    async with double() as made:
        made.knows_jobs_route()
        made.answers[f"GET /api/jobs/{job_id}"] = said
        answer = await ask(made, job_id)
        assert answer.known is Known.CANT_TELL
        assert answer.why


@pytest.mark.parametrize(
    "said", [(200, b"<html></html>"), (200, {}), (502, b""), (404, b""), (200, {"queue_running": 1})], ids=str
)
@pytest.mark.parametrize("place", ["queue", "history"])
async def test_an_older_server_that_answers_anything_else_cant_be_told(place: str, said: tuple[int, Any]) -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers["GET /queue"] = queue(job_id)
        made.answers[f"GET /history/{job_id}"] = (200, {})
        made.answers["GET /queue" if place == "queue" else f"GET /history/{job_id}"] = said
        expected = Known.UNKNOWN if (place, said) == ("history", (200, {})) else Known.CANT_TELL
        assert (await ask(made, job_id)).known is expected


@pytest.mark.parametrize("said", [(200, b"<html></html>"), (502, b""), FIVE_HUNDRED, (403, b"")], ids=str)
async def test_whether_the_route_exists_is_not_learned_from_a_strange_answer(said: tuple[int, Any]) -> None:
    async with double() as made:
        made.answers["GET /api/jobs/"] = said
        assert (await ask(made, uuid4())).known is Known.CANT_TELL
        made.knows_jobs_route()
        assert await made.client.has_jobs_route() is True


async def test_a_route_that_vanished_is_learned_anew() -> None:
    job_id = uuid4()
    async with double() as made:
        made.knows_jobs_route()
        assert (await ask(made, job_id)).known is Known.UNKNOWN
        made.answers.clear()
        made.answers["GET /queue"] = queue(job_id)
        made.answers[f"GET /history/{job_id}"] = (200, {})
        assert (await ask(made, job_id)).known is Known.CANT_TELL
        assert (await ask(made, job_id)).known is Known.UNKNOWN
        assert await made.client.has_jobs_route() is False


async def test_a_server_that_is_down_cant_tell() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with client(f"http://127.0.0.1:{taken.getsockname()[1]}") as comfy:
            assert (await comfy.ask(uuid4(), SUBMIT, doubt=False)).known is Known.CANT_TELL


async def test_an_answer_cut_off_cant_be_told() -> None:
    body = json.dumps({"error": "Job not found"}).encode()

    async def talk(one: Conversation) -> None:
        await one.read_head()
        await one.say("404 Not Found", body, "Content-Type: application/json", length=len(body) + 1)
        one.writer.close()

    async with peer(talk) as made, client(made.url) as comfy:
        assert (await comfy.ask(uuid4(), SUBMIT, doubt=False)).known is Known.CANT_TELL


async def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genflow.comfy.client.MAX_JSON_BYTES", 1_000)
    async with double() as made:
        made.answers["GET /object_info"] = (200, {"x": "y" * 2_000})
        with pytest.raises(ServerAnswered, match="more than 1000 bytes"):
            await made.client.object_info()


# The server itself.


async def test_depth_stats_and_object_info() -> None:
    async with double() as made:
        made.answers["GET /prompt"] = (200, {"exec_info": {"queue_remaining": 3}})
        made.answers["GET /system_stats"] = (200, {"system": {"comfyui_version": "0.33.0"}})
        made.answers["GET /object_info"] = (200, {"SaveImage": {}})
        assert await made.client.depth() == 3
        assert (await made.client.system_stats())["system"]["comfyui_version"] == "0.33.0"
        assert await made.client.object_info() == {"SaveImage": {}}


@pytest.mark.parametrize(
    "said", [(200, {}), (200, {"exec_info": {"queue_remaining": "3"}}), (200, b"<html>"), (500, {})]
)
async def test_a_depth_that_is_none_is_no_depth(said: tuple[int, Any]) -> None:
    async with double() as made:
        made.answers["GET /prompt"] = said
        with pytest.raises(ServerAnswered):
            await made.client.depth()


async def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genflow.comfy.client.CALL_TIMEOUT_S", 0.2)

    async def talk(one: Conversation) -> None:
        await one.read_head()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(ServerUnreachable):
            await comfy.depth()


# Stopping.


async def test_cancel_uses_the_one_atomic_call() -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers[f"POST /api/jobs/{job_id}/cancel"] = (200, {"cancelled": True})
        await made.client.cancel(job_id)
        assert made.asked == [f"POST /api/jobs/{job_id}/cancel"]


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("running", [True, False])
async def test_where_the_cancel_route_is_missing_only_this_very_prompt_is_interrupted(
    status: int, running: bool
) -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers[f"POST /api/jobs/{job_id}/cancel"] = (status, b"")
        made.answers["POST /queue"] = (200, b"")
        made.answers["POST /interrupt"] = (200, b"")
        made.answers["GET /queue"] = queue(job_id if running else uuid4(), running=SUBMIT)
        await made.client.cancel(job_id)
        assert json.loads(made.bodies[1]) == {"delete": [str(job_id)]}
        assert made.asked[1:] == ["POST /queue", "GET /queue", "POST /interrupt"][: 3 if running else 2]
        if running:
            assert json.loads(made.bodies[3]) == {"prompt_id": str(job_id)}


async def test_deletes_name_the_one_job() -> None:
    job_id = uuid4()
    async with double() as made:
        made.answers["POST /queue"] = made.answers["POST /history"] = (200, b"")
        await made.client.queue_delete(job_id)
        await made.client.history_delete(job_id)
        assert [json.loads(body) for body in made.bodies] == [{"delete": [str(job_id)]}] * 2


async def test_a_call_that_was_not_done_is_told() -> None:
    async with double() as made:
        made.answers["POST /"] = FIVE_HUNDRED
        for call in (made.client.cancel, made.client.queue_delete, made.client.history_delete):
            with pytest.raises(ServerAnswered):
                await call(uuid4())


async def test_a_changing_call_given_up_is_reset_so_that_it_cant_arrive_late() -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()
        await one.read_body()

    async with peer(talk) as made, client(made.url) as comfy:
        for call in (comfy.cancel, comfy.queue_delete, comfy.history_delete):
            with pytest.raises(ServerUnreachable):
                await call(uuid4(), timeout_s=0.2)
        assert [await one.reset for one in made.conversations] == [True] * 3
